# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# How a kernel is made for the cache: the source that the private root holds, patched,
# configured with fragments of this folder on top of allnoconfig or of another
# configuration, and built. The entry's directory is the build tree itself; its source
# stays complete, for the kernel's own selftests are built from it as well.
# Sourced by scripts/cache/kernel*, with the names of the fragments in $fragments, of the
# folders of patches in $patches, of the compiler in $compiler (clang unless it is gcc), and
# of a function in $base, if another configuration than allnoconfig is below the fragments:
# it makes the file $dir/.base.
# scripts/setup says what the words mean that this answers to, and sets top and dir.
# Recipes run under set -e.
# shellcheck disable=SC2154,SC2164
. "$top/scripts/lib.sh"

: "${fragments:?}" "${patches:?}"
[ "${compiler-}" = gcc ] || cross="$cross $llvm"

# Prints the fragments, in their order.
configuration() {
	(cd "$top/scripts/kernel" && printf '%s\n' "$fragments" | xargs cat)
}

# Prints the paths of the patches, in their order.
patch_files() {
	for folder in $patches; do
		printf '%s\n' "$top/scripts/kernel/$folder"/*.patch
	done
}

in_tree() {
	# shellcheck disable=SC2086
	"$top/scripts/in-root" make -C "$dir" $cross "$@"
}

# Stops with the names of the fragments' symbols that the configuration lost: one
# that lacks a dependency, or a toolchain, drops out without a word.
compare_config() {
	lost=$(configuration | grep -E '^(CONFIG_|# CONFIG_)' | grep -vxF -f "$dir/.config" | tr '\n' ' ')
	if [ "$lost" ]; then
		echo "lost from the configuration: $lost"
		return 1
	fi
}

case $1 in
needs)
	echo root
	;;
key)
	# What made the tools of the root is the root's own matter: a root made anew
	# with the same versions keeps the kernel.
	root=$("$top/scripts/setup" --print root)
	cat "$root/kernel-source"
	configuration
	# The messages of the patches change nothing.
	patch_files | xargs sed -n '/^diff --git/,$p'
	grep -E "^(linux-source|rustc|rust-src|bindgen|clang|lld|llvm|libclang|gcc|make) |^(linux-source|clang|lld|llvm|gcc)-[^ ]* " "$root/versions"
	sed '/^[[:space:]]*#/d' "$top/scripts/kernel/recipe.sh"
	;;
stages)
	echo source ${base:+base} config vmlinux modules
	;;

source)
	root=$("$top/scripts/setup" --print root)
	find "$dir" -mindepth 1 -delete
	"$top/scripts/in-root" tar -C "$dir" --strip-components=1 -xf "/usr/src/$(cat "$root/kernel-source").tar.xz"
	for patch in $(patch_files); do
		"$top/scripts/in-root" patch -d "$dir" -p1 --fuzz=0 --no-backup-if-mismatch -i "$patch"
	done
	;;

base)
	"$base"
	;;

config)
	configuration >"$dir/.fragments"
	if [ "${base-}" ]; then
		cat "$dir/.base" "$dir/.fragments" >"$dir/.config"
		in_tree olddefconfig
	else
		in_tree KCONFIG_ALLCONFIG="$dir/.fragments" allnoconfig
	fi
	in_tree rustavailable
	compare_config
	;;

vmlinux | modules)
	in_tree RUST_LIB_SRC="$("$top/scripts/in-root" sh -c 'echo "$(rustc --print sysroot)/lib/rustlib/src/rust/library"')" \
		-j"$(nproc)" "$1"
	compare_config
	;;

seal)
	cd "$dir"
	sha256sum vmlinux Module.symvers .config include/config/auto.conf include/generated/rustc_cfg
	fingerprint . Makefile Kbuild scripts rust include arch/powerpc tools/testing/selftests/powerpc
	;;

*)
	die "cache/${0##*/}: no stage '$1'"
	;;
esac
# Whoever edits this file meanwhile: the shell reads no further.
exit

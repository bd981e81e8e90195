# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# Makes a kernel for the cache: patches the source of the private root, configures it with
# fragments of this folder on top of allnoconfig or of another configuration, and builds it.
# The entry's directory is the build tree. It keeps the complete source, because the kernel's
# own selftests are built from it, too.
# scripts/cache/kernel* source this file, and set
#   $fragments  the names of the fragments
#   $patches    the folders of the patches
#   $compiler   gcc, or nothing for clang
#   $base       a function that makes the file $dir/.base, if the fragments are on top of another
#               configuration than allnoconfig
# scripts/setup describes the commands of a recipe, and sets top and dir. Recipes run under
# set -e.
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

# Stops with the names of the fragments' symbols that the configuration lost: kconfig drops
# a symbol without a message if a dependency or a tool is missing.
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
	# Of the root only the versions of its tools count: if the root is made again with the
	# same versions, the kernel remains valid.
	root=$("$top/scripts/setup" --print root)
	cat "$root/kernel-source"
	configuration
	# The messages of the patches do not affect the build.
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
# Stop the shell here: otherwise it would execute lines that are added while it runs.
exit

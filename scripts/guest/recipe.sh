# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# Makes an entry of the cache with files for guests: from Debian packages of the guest's
# architecture, from the kernel's source, or both.
# scripts/cache/* source this file at their end, and set
#   $packages  packages to unpack in $dir/fs, with all that they depend on
#   $needs     the entries that it needs besides the private root
#   $product   the files or folders of $dir that remain in the entry
#   build      a function that makes these, with $dir/build for temporary files
# scripts/setup describes the commands of a recipe, and sets top and dir.
# Recipes run under set -e.
# shellcheck disable=SC2086,SC2154,SC2164
. "$top/scripts/lib.sh"

# Downloads and unpacks the packages, in the private root, whose own packages do not change.
# They are from the release and not from its backports: guests need nothing newer, and the
# release's index rarely changes during a download.
unpack_packages() {
	apt=$dir/apt
	rm -rf "$apt" "$dir/fs"
	mkdir -p "$apt" "$dir/fs"
	: >"$apt/status"
	cat >"$apt/conf" <<-EOF
		APT::Architecture "ppc64el";
		#clear APT::Architectures;
		APT::Architectures "ppc64el";
		APT::Sandbox::User "root";
		Acquire::Languages "none";
		Dir::Etc::sourcelist "$apt/sources.list";
		Dir::State "$apt";
		Dir::State::status "$apt/status";
		Dir::Cache "$apt/cache";
	EOF
	export APT_CONFIG="$apt/conf"
	# Nothing is installed, so apt downloads all dependencies, too.
	with_lists apt-get install -y --no-install-recommends --download-only $packages
	for package in "$apt"/cache/archives/*.deb; do
		unpack "$package" "$dir/fs"
	done
	rm -rf "$apt"
}

# with_lists COMMAND...: downloads apt's lists, and runs the command, which downloads packages. For
# hours or days a mirror behind a cache may return an index that does not match the release's
# signature, or that has packages which the mirror lacks. The cache may have a matching index under
# another name of the release.
with_lists() {
	read -r deb mirror release component </etc/apt/sources.list
	for name in "$release" stable oldstable "$release"; do
		echo "$deb $mirror $name $component" >"$apt/sources.list"
		rm -rf "$apt/lists" "$apt/cache"
		mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
		if apt-get update && grep -qx "Codename: $release" "$apt"/lists/*InRelease && "$@"; then
			return
		fi
		echo "no packages of $release by the name $name"
		[ "$name" != oldstable ] || sleep 20
	done
	return 1
}

# pick FILE PATH: copies FILE to PATH of the guest, and the libraries that it needs from the
# packages to the folder in which glibc searches first.
pick() {
	mkdir -p "$dir/build/pick/$(dirname "$2")"
	cp -L "$1" "$dir/build/pick/$2"
	for name in $(powerpc64le-linux-gnu-readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
		[ ! -e "$dir/build/pick/lib/powerpc64le-linux-gnu/$name" ] || continue
		found=$(find "$dir/fs/usr/lib" "$dir/fs/lib" -name "$name" | head -n 1)
		[ "$found" ] || die "no library $name, which $1 needs"
		pick "$found" "lib/powerpc64le-linux-gnu/$name"
	done
}

# Makes an initramfs archive of the picked files.
pack() {
	# Programs contain this name of the loader.
	pick "$(find "$dir/fs" -name ld64.so.2 | head -n 1)" lib64/ld64.so.2
	"$top/scripts/initramfs" "$dir/build/pick" "$dir/$product"
}

case $1 in
needs)
	echo root ${needs-}
	;;
key)
	root=$("$top/scripts/setup" --print root)
	if [ "${needs-}" ]; then
		basename "$("$top/scripts/setup" --print "$needs")"
		# The versions of the compiler and of libc with its headers, which include the kernel's.
		grep -E '^(gcc|binutils|libc6|libgcc|linux-libc)[^ ]*(powerpc64le|ppc64el)' "$root/versions"
	fi
	head -n 1 "$root/etc/apt/sources.list" | cut -d ' ' -f 3-
	sed '/^[[:space:]]*#/d' "$0" "$top/scripts/guest/recipe.sh" "$top/scripts/initramfs"
	;;
stages)
	echo ${packages:+packages} build
	;;
seal)
	cd "$dir"
	find $product -type f -exec sha256sum {} + | LC_ALL=C sort
	;;
*)
	[ "${EBB_IN_ROOT-}" ] || exec "$top/scripts/in-root" env top="$top" dir="$dir" "$0" "$1"
	cd "$dir"
	if [ "$1" = packages ]; then
		unpack_packages
	else
		rm -rf build $product
		mkdir build
		build
		rm -rf build fs
	fi
	;;
esac

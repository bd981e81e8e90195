# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# How an entry of the cache is made whose files go into guests: from Debian packages of
# the guest's architecture, from the kernel's source, or both.
# Sourced at the end of scripts/cache/*, which set
#   $packages  packages that are unpacked in $dir/fs, with all that they depend on
#   $needs     what it is made with besides the private root
#   $product   the files or folders of $dir that the entry has in the end
#   build      a function that makes these, with $dir/build for what comes before them
# scripts/setup says what the words mean that this answers to, and sets top and dir.
# Recipes run under set -e.
# shellcheck disable=SC2086,SC2154,SC2164
. "$top/scripts/lib.sh"

# Runs in the private root, whose own packages stay as they are. The packages are taken
# from the release itself, not its backports: what runs in the guest needs nothing
# newer, and that one index seldom changes under a download.
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
	# With nothing installed, all that a package depends on comes along.
	with_lists apt-get install -y --no-install-recommends --download-only $packages
	for package in "$apt"/cache/archives/*.deb; do
		unpack "$package" "$dir/fs"
	done
	rm -rf "$apt"
}

# with_lists COMMAND...: downloads packages by it, once there are apt's lists of them. A mirror behind
# a cache may for hours or days give an index that does not fit the release's signature, or one of
# packages that it does not have yet. The release has other names, and what is kept under those may
# be another index.
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

# pick FILE PATH: puts FILE into the guest as PATH, and the libraries that it names,
# found among the packages, into the folder where glibc looks first.
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

# Makes an initramfs archive of what was picked.
pack() {
	# The interpreter is looked up under the name that programs bear.
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
		# Compiler and libc's headers; the headers of the kernel come with them.
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

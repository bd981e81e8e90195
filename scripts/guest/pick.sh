# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# How a recipe puts programs of the guest's architecture into an initramfs archive.
# Sourced by scripts/cache/*, which set top and dir; packages are unpacked in
# $dir/fs, and $dir/pick becomes the archive.
# shellcheck disable=SC2154

# pick FILE PATH: puts FILE into the guest as PATH, and the libraries that it names,
# found among the packages, into the folder where glibc looks first.
pick() {
	mkdir -p "$dir/pick/$(dirname "$2")"
	cp -L "$1" "$dir/pick/$2"
	for name in $("$top/scripts/in-root" powerpc64le-linux-gnu-readelf -d "$1" |
		sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
		[ ! -e "$dir/pick/lib/powerpc64le-linux-gnu/$name" ] || continue
		found=$(find "$dir/fs/usr/lib" "$dir/fs/lib" -name "$name" | head -n 1)
		[ "$found" ] || die "no library $name, which $1 needs"
		pick "$found" "lib/powerpc64le-linux-gnu/$name"
	done
}

# The interpreter is looked up under the name that programs bear.
pick_interpreter() {
	pick "$(find "$dir/fs" -name ld64.so.2 | head -n 1)" lib64/ld64.so.2
}

# pack ARCHIVE: makes the archive and removes what it was made of.
pack() {
	"$top/scripts/in-root" python3 -B "$top/scripts/guest/initramfs.py" "$dir/pick" "$1"
	rm -rf "$dir/pick" "$dir/fs"
}

# Prints what of this the result depends on.
pick_key() {
	sed '/^[[:space:]]*#/d' "$top/scripts/guest/pick.sh" "$top/scripts/guest-packages" \
		"$top/scripts/guest/initramfs.py"
	head -n 1 "$("$top/scripts/setup" --print root)/etc/apt/sources.list" | cut -d ' ' -f 3-
}

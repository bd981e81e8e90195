# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# KTAP for the tests of the scripts: plan once, then `is` for each test; `finish`
# ends with the exit status. Gives each test program a folder of its own, $tmp.

ktap_number=0
ktap_failed=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

plan() {
	echo "KTAP version 1"
	echo "1..$1"
}

# is NAME WANTED ACTUAL
is() {
	ktap_number=$((ktap_number + 1))
	if [ "$2" = "$3" ]; then
		echo "ok $ktap_number $1"
		return
	fi
	ktap_failed=1
	echo "not ok $ktap_number $1"
	printf 'wanted: %s\nfound:  %s\n' "$2" "$3" | sed 's/^/# /'
}

finish() {
	exit "$ktap_failed"
}

# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# Common functions of the scripts' tests; each test sources this file first. Sets $top to the
# checkout and gives the test a folder of its own, $tmp, in the cache, because other folders do not
# exist inside the private root. Prints KTAP: a result for each `is` and `check`, and the plan at
# the end, so that a test that ends early has no plan and fails.
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd -P)
export EBB_CACHE="${EBB_CACHE:-$top/.cache}"
# Python programs of the tests import scripts/host.
export PYTHONPATH="$top/scripts"
mkdir -p "$EBB_CACHE/run"
tmp=$(mktemp -d "$EBB_CACHE/run/test.XXXXXX")
out=$tmp/stdout err=$tmp/stderr status=
. "$top/tools/testing/selftests/ktap/ktap.sh"

# Commands with which a test cleans up further things.
cleanup=
end() {
	ended=$?
	eval "$cleanup"
	rm -rf "$tmp"
	[ "$ended" -eq 0 ] || exit "$ended"
	echo "1..$ktap_number"
	finish
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
echo 'KTAP version 1'

# run COMMAND...: runs a command; sets $status, and stores the output in $out and $err.
run() {
	status=0
	"$@" >"$out" 2>"$err" </dev/null || status=$?
}

# vm ARGUMENT...: runs scripts/vm in the same way.
vm() {
	run "$top/scripts/vm" "$@"
}

# in_guest COMMAND...: runs a command in a guest, under the kernel's own driver, so that these
# tests need no module.
in_guest() {
	vm run --driver in-tree -- "$@"
}

# check NAME TEST...: prints the result of the command TEST, and if it failed also the output
# of the last `run`.
check() {
	name=$1
	shift
	if "$@"; then
		result 0 "$name"
	else
		result 1 "$name" "failed: $*"
		[ -z "$status" ] || {
			echo "# exit status $status; stdout and the end of stderr:"
			head -n 15 "$out" | head -c 2000 | tr -c '[:print:]\n' '?'
			tail -n 15 "$err"
		} | sed 's/^/#   /'
	fi
}

# is NAME WANTED FOUND: prints a result, which is whether the two are equal.
is() {
	check "$1" [ "$2" = "$3" ]
}

# printed LINE...: checks that stdout was exactly these lines.
printed() {
	printf '%s\n' "$@" | cmp -s - "$out"
}

# ended STATUS TEXT: checks the exit status, and that a line of stderr contains TEXT.
ended() {
	[ "$status" -eq "$1" ] && grep -qF -e "$2" "$err"
}

# make_script NAME: makes an executable script from standard input, in $tmp/scripts.
make_script() {
	mkdir -p "$(dirname "$tmp/scripts/$1")"
	{ echo '#!/bin/sh' && cat; } >"$tmp/scripts/$1"
	chmod +x "$tmp/scripts/$1"
}

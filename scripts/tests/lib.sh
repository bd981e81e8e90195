# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# What the tests of the scripts share; each sources it first. Sets $top to the
# checkout and gives the test a folder of its own, $tmp, in the cache, as other
# folders are not seen inside the private root. Prints KTAP: a result for each `is`
# and `check`, and the plan last, so that a test that ends early has none and fails.
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd -P)
export EBB_CACHE="${EBB_CACHE:-$top/.cache}"
# Python programs of the tests import scripts/host.
export PYTHONPATH="$top/scripts"
mkdir -p "$EBB_CACHE/run"
tmp=$(mktemp -d "$EBB_CACHE/run/test.XXXXXX")
out=$tmp/stdout err=$tmp/stderr status=
. "$top/tools/testing/selftests/ktap/ktap.sh"

# A test may have more to clean up, in $cleanup.
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

# run COMMAND...: sets $status, and has what it printed in $out and $err.
run() {
	status=0
	"$@" >"$out" 2>"$err" </dev/null || status=$?
}

# vm ARGUMENT...: runs scripts/vm so.
vm() {
	run "$top/scripts/vm" "$@"
}

# in_guest COMMAND...: runs it in a guest, under the kernel's own driver, so that
# these tests need no module.
in_guest() {
	vm run --driver in-tree -- "$@"
}

# check NAME TEST...: one result, the outcome of the command TEST; on failure with
# what the last `run` printed.
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

# is NAME WANTED FOUND: one result, whether these are the same.
is() {
	check "$1" [ "$2" = "$3" ]
}

# printed LINE...: stdout was exactly these lines.
printed() {
	printf '%s\n' "$@" | cmp -s - "$out"
}

# ended STATUS TEXT: the exit status was this, and a line of stderr has TEXT.
ended() {
	[ "$status" -eq "$1" ] && grep -qF -e "$2" "$err"
}

# make_script NAME: makes an executable script of standard input, in $tmp/scripts.
make_script() {
	mkdir -p "$(dirname "$tmp/scripts/$1")"
	{ echo '#!/bin/sh' && cat; } >"$tmp/scripts/$1"
	chmod +x "$tmp/scripts/$1"
}

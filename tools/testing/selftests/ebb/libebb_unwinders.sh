#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Checks that libunwind and gdb find the way from a handler of libebb to the interrupted code and
# its callers. Needs both (`scripts/vm run --packages gdb libunwind8`).

# run_tests calls the tests by name.
# shellcheck disable=SC2329
set -u
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tools/testing/selftests/ktap/ktap.sh
. "$here/ktap.sh"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# leads_to_main: standard input must have these functions, one below the other.
leads_to_main() {
	[ "$(grep -xE 'handler|leaf|caller|main' | tr '\n' ' ')" = 'handler leaf caller main ' ] ||
		fail 'the frames do not lead from the handler to main'
}

libunwind() {
	must "$here/libebb_unwinders" >"$work/frames"
	cat "$work/frames"
	leads_to_main <"$work/frames"
}

gdb_backtrace() {
	must gdb -batch -nx -ex 'break handler' -ex 'ignore 1 4' -ex run -ex backtrace \
		"$here/libebb_unwinders" >"$work/frames" 2>&1
	cat "$work/frames"
	grep -q '<signal handler called>' "$work/frames" || fail 'gdb does not recognise the entry as a signal frame'
	sed -n 's/^#.* in \([a-z_]*\) (.*/\1/p' "$work/frames" >"$work/names"
	leads_to_main <"$work/names"
}

run_tests libunwind gdb_backtrace

#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The messages of ebbprof during and after a recording.
#
# Needs shared libraries in the guest (`scripts/vm run --libs`).

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/ebbprof/ebbprof_record.sh
. "$(dirname "$0")/ebbprof_record.sh"

# The progress line is updated, and removed at the end.
progress_is_on_a_terminal() {
	must ebbprof_terminal ebbprof record -c "$PERIOD" -o "$work/data" ebbprof_work rest 100 4 >"$work/screen"
	tr '\r' '\n' <"$work/screen" | sed -n 's/.*ebbprof: \([0-9]*\) samples of 1 threads so far, 0 lost.*/\1/p' >"$work/lines"
	cat "$work/lines"
	awk '$1 <= last { exit 1 } { last = $1 } END { exit(NR < 2) }' "$work/lines" || fail "no progress"
	tr '\r' '\n' <"$work/screen" | tail -n 5 | cat -v
	erase=$(printf '\033[K')
	tr '\r' '\n' <"$work/screen" | grep -qF "${erase}ebbprof: $(tail -n 1 "$work/lines") samples" || fail "no line"
	tr '\r' '\n' <"$work/screen" | grep -q "^${erase%K}Kebbprof: [0-9]* samples of 1 threads, 0 lost, in" ||
		fail "the progress line remains"
	record 0 ebbprof_work rest 100 2
	! grep 'so far' "$work/said" || fail "progress without a terminal"
}

# The cost per sample, and with callers also per caller. `make bench` measures what a sample costs.
cost_is_told() {
	record 0 ebbprof_work plain 10000
	must grep -Eq "^ebbprof: the samples took [0-9.]+% of the program's [0-9.]+ s: [1-9][0-9.]* ns each, " "$work/said"
	record 0 -g ebbprof_work plain 10000
	must grep -Eq ' ns each, [1-9][0-9.]* ns per caller, ' "$work/said"
}

[ -e /lib64/ld64.so.2 ] || skip_all "there are no shared libraries"
run_tests progress_is_on_a_terminal cost_is_told

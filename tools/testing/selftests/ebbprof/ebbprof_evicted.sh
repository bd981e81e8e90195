#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# ebbprof while another event takes the PMU during the recording.
#
# Needs shared libraries and the perf tool in the guest (`scripts/vm run --libs --perf`).

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/ebbprof/ebbprof_record.sh
. "$(dirname "$0")/ebbprof_record.sh"

# Ten passes of ebbprof_work, rounded to a prime.
PERIOD=100003

# evicted WAY PASSES THREADS: records while a pinned event of each CPU has the PMU for 0.4 s. Checks
# that the loss is reported, and that there are samples before and after it. A thread that loses the
# PMU while it takes a sample, which is a hundredth of its time, gets no more samples. Then the test
# is repeated.
evicted() {
	for turn in 1 2 3; do
		evicted_once "$@" && return
		grep -q 'EBBs stopped arriving$' "$work/said" || break
	done
	fail "not one gap of 0.4 s, in turn $turn"
}

evicted_once() {
	ebbprof record -c "$PERIOD" -o "$work/data" ebbprof_work "$1" "$2" "$3" 2>"$work/said" &
	recorder=$!
	sleep 0.3
	perf stat -a -e cycles:D sleep 0.4 >"$work/perf" 2>&1 || fail "perf fails"
	cat "$work/perf"
	must wait "$recorder"
	cat "$work/said"
	must grep -q "^ebbprof: another perf event took the PMU $3 times: no samples for " "$work/said"
	must perf script -i "$work/data" -F time >"$work/script"
	# The longest time without samples is that of the other event, and a little more.
	awk '
		{ time = $1 + 0; if (NR == 1) first = time; else if (time - last > gap) { gap = time - last; at = last }; last = time }
		END {
			print "from", first, "to", last, "none for", gap, "from", at
			exit(!(gap > 0.35 && gap < 0.8 && at - first > 0.2 && last - at - gap > 0.2))
		}
	' "$work/script"
}

samples_go_on() {
	evicted threads 120000 1
}

# This holds for a process whose first thread has ended, too.
last_threads_go_on() {
	evicted orphans 120000 1
}

# Threads that lose the PMU in their handlers survive, whatever the program does to SIGILL.
program_outlives_evictions() {
	ebbprof record -c 1009 -o "$work/data" ebbprof_signals blocked >"$work/with" 2>"$work/said" &
	recorder=$!
	runs ebbprof_signals 0.1
	evictions=0
	while [ -e "/proc/$program/fd/0" ]; do
		perf stat -a -e cycles:D sleep 0.01 >"$work/perf" 2>&1 || fail "perf fails"
		evictions=$((evictions + 1))
	done
	status=0
	wait "$recorder" || status=$?
	cat "$work/said" "$work/with"
	echo "$evictions evictions"
	[ "$status" -eq 0 ] || fail "status $status"
	must grep -q '^0 traps$' "$work/with"
}

command -v perf >/dev/null || skip_all "there is no perf tool"
[ -e /lib64/ld64.so.2 ] || skip_all "there are no shared libraries"
run_tests samples_go_on last_threads_go_on program_outlives_evictions

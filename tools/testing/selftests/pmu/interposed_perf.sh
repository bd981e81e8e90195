#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The perf tool on a kernel whose built-in driver keeps the regular events: what it counts, samples
# and records is the same before the module is inserted, with it, and after it is removed, and
# sessions do not notice either.
#
# usage: interposed_perf.sh [TIMES]      (changes of drivers under running sessions, 200 by default)
#
# Needs the perf tool in the guest (`scripts/vm run --perf`).

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"

# So much that the work of the kernel, which QEMU counts as well, is far below one per cent.
WORK=500000000
times=${1:-200}

# at_each_time FUNCTION: calls it three times, with the name of a file for what it finds, after a
# time that does not count: the programs are read for the first time then.
at_each_time() {
	watch_log
	unload
	"$1" "$work/first"
	"$1" "$work/before"
	load
	"$1" "$work/with"
	unload
	"$1" "$work/after"
	quiet
}

# The counts of the program's own instructions, "EVENT VALUE".
counts() {
	must perf stat -x , -e instructions:u,r600f4:u -o "$work/stat" pmu_tool work "$WORK"
	awk -F , 'NF > 2 { print $3, $1, $5 }' "$work/stat" >"$1"
	echo "$(basename "$1"): $(tr '\n' ' ' <"$1")"
}

counts_are_the_same() {
	at_each_time counts
	[ "$(grep -c '^instructions:u [0-9]* 100.00$' "$work/before")" = 1 ] || fail "nothing is counted before"
	for file in with after; do
		paste "$work/before" "$work/$file" | awk -v apart="$apart" '
			$2 !~ /^[0-9]+$/ || $5 !~ /^[0-9]+$/ || $3 != $6 { exit 1 }
			$5 > $2 * (1 + apart / 100) || $5 < $2 * (1 - apart / 100) { exit 1 }
		' || fail "other counts $file"
	done
}

# Nearly all samples are in pmu_work_a, a short loop. On POWER9 in QEMU the built-in driver reports
# them as samples of the kernel, and perf prints their address instead of a symbol.
samples() {
	must perf record -q -e instructions:u -c 1000000 -o "$work/data" pmu_tool work "$WORK"
	must perf report -i "$work/data" --stdio --sort symbol >"$work/report"
	sed -nE 's/^ *(9[0-9]|100)\.[0-9]+% +(\[\.\] pmu_work_a|\[k\] 0x0*1[0-9a-f]{7}) .*/\2/p' "$work/report" >"$1"
	[ -s "$1" ] || fail "pmu_work_a has not nearly all samples: $(grep -v '^#' "$work/report" | head -n 5)"
	echo "$(basename "$1"): $(cat "$1")"
}

samples_are_the_same() {
	at_each_time samples
	for file in with after; do
		cmp -s "$work/before" "$work/$file" || fail "other samples $file"
	done
}

# Whether perf can record branches, and which pairs of functions they have.
branches() {
	if ! perf record -q -j any,u -e cycles:u -c 100003 -o "$work/data" pmu_branch_work 100000 >"$work/said" 2>&1; then
		echo refused >"$1"
		return
	fi
	must perf report -i "$work/data" --stdio --sort symbol_from,symbol_to >"$work/report"
	grep -oE '\[\.\] [a-z0-9_]+ +\[\.\] [a-z0-9_]+' "$work/report" | grep -E 'branch_loop|f[123]' | sort -u >"$1" || :
	echo "$(basename "$1"): $(tr -s '\n ' '  ' <"$1")"
}

branches_are_the_same() {
	at_each_time branches
	for file in with after; do
		cmp -s "$work/before" "$work/$file" || fail "other branches $file"
	done
}

# A program that works and sleeps until $work/run is removed. An emulator passes over the time in
# which all sleep, and each change of drivers waits a second for RCU.
# shellcheck disable=SC2016
program='while [ -e "$0" ]; do i=0; while [ $i -lt 500 ]; do i=$((i + 1)); done; sleep 0.1; done'

# The module is inserted and removed while perf counts, samples, and counts all CPUs.
sessions_do_not_notice() {
	unload
	watch_log
	: >"$work/run"
	perf stat -x , -e instructions:u,cycles:u -o "$work/stat" sh -c "$program" "$work/run" &
	counting=$!
	perf record -q -e instructions:u -c 100003 -o "$work/data" sh -c "$program" "$work/run" &
	sampling=$!
	perf stat -a -x , -e instructions -o "$work/all" sh -c "$program" "$work/run" &
	all=$!
	for _ in $(seq "$times"); do
		must insmod "$MODULE"
		must rmmod "$NAME"
	done
	quiet
	rm "$work/run"
	for session in "$counting" "$sampling" "$all"; do
		wait "$session" || fail "a session of perf ended with status $?"
	done
	cat "$work/stat" "$work/all"
	# No event was off for a moment.
	[ "$(grep -cE '^[1-9][0-9]*,.*,100\.00,' "$work/stat")" = 2 ] || fail "events of a program were off"
	grep -qE '^[1-9][0-9]*,.*,100\.00,' "$work/all" || fail "an event of the CPUs was off"
	must perf report -i "$work/data" --stdio --sort comm >"$work/report"
	grep -E '^ *[0-9.]+% +sh' "$work/report" || fail "no samples of the program"
}

command -v perf >/dev/null || skip_all "there is no perf tool"
restore_at_end
run_tests counts_are_the_same samples_are_the_same branches_are_the_same sessions_do_not_notice

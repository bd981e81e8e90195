#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The perf tool on a kernel whose built-in driver keeps the regular events: what it counts, samples
# and records is the same before the module is inserted, with it, and after it is removed, and
# sessions do not notice either.
#
# Needs the perf tool in the guest (`scripts/vm run --perf`).

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"

WORK=200000000

# at_each_time FUNCTION: calls it three times, with the name of a file for what it finds.
at_each_time() {
	watch_log
	unload
	"$1" "$work/before"
	load
	"$1" "$work/with"
	unload
	"$1" "$work/after"
	quiet
}

# The counts of the program's own instructions, "EVENT VALUE".
counts() {
	must perf stat -x , -e instructions:u,r600f4:u,branches:u -o "$work/stat" pmu_tool work "$WORK"
	awk -F , 'NF > 2 { print $3, $1, $5 }' "$work/stat" >"$1"
	echo "$(basename "$1"): $(tr '\n' ' ' <"$1")"
}

counts_are_the_same() {
	at_each_time counts
	[ "$(grep -c '^instructions:u [0-9]* 100.00$' "$work/before")" = 1 ] || fail "nothing is counted before"
	for file in with after; do
		# Starting and ending the program takes some more or less.
		paste "$work/before" "$work/$file" | awk '
			$2 !~ /^[0-9]+$/ { if ($2 != $5) exit 1; next }
			$3 != $6 || $5 > $2 * 1.001 + 1000 || $5 < $2 * 0.999 - 1000 { exit 1 }
		' || fail "other counts $file"
	done
}

# The share of pmu_work_a in the samples is nearly all.
samples() {
	must perf record -q -e instructions:u -c 1000000 -o "$work/data" pmu_tool work "$WORK"
	must perf report -i "$work/data" --stdio --sort symbol >"$work/report"
	grep -E '^ *(9[0-9]|100)\.[0-9]+%.*pmu_work_a' "$work/report" >"$1" ||
		fail "pmu_work_a has not nearly all samples: $(grep -v '^#' "$work/report" | head -n 5)"
	echo "$(basename "$1"): $(cat "$1")"
}

samples_are_the_same() {
	at_each_time samples
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

# The module comes and goes 200 times while perf counts, samples, and counts all CPUs.
sessions_do_not_notice() {
	unload
	watch_log
	: >"$work/run"
	# shellcheck disable=SC2016
	perf stat -x , -e instructions:u,branches:u -o "$work/stat" sh -c 'while [ -e "$0" ]; do :; done' "$work/run" &
	counting=$!
	perf record -q -e instructions:u -c 1000000 -o "$work/data" pmu_tool work 2000000000 &
	sampling=$!
	# shellcheck disable=SC2016
	perf stat -a -x , -e instructions -o "$work/all" sh -c 'while [ -e "$0" ]; do sleep 1; done' "$work/run" &
	all=$!
	for change in $(seq 200); do
		# RCU takes as long as it does, then it hurries.
		echo $((change > 8)) >/sys/kernel/rcu_expedited
		must insmod "$MODULE"
		must rmmod "$NAME"
	done
	quiet
	wait "$sampling" || fail "perf record ended with status $?"
	rm "$work/run"
	wait "$counting" || fail "perf stat ended with status $?"
	wait "$all" || fail "perf stat -a ended with status $?"
	cat "$work/stat" "$work/all"
	# Neither event was off for a moment.
	[ "$(grep -cE '^[1-9][0-9]*,.*,100\.00,' "$work/stat")" = 2 ] || fail "events of a program were lost"
	grep -qE '^[1-9][0-9]*,.*,100\.00,' "$work/all" || fail "an event of the CPUs was lost"
	must perf report -i "$work/data" --stdio --sort symbol >"$work/report"
	grep -E '^ *(9[0-9]|100)\.[0-9]+%.*pmu_work_a' "$work/report" || fail "pmu_work_a has not nearly all samples"
}

command -v perf >/dev/null || skip_all "there is no perf tool"
restore_at_end
trap 'echo 0 >/sys/kernel/rcu_expedited; $at_start; rm -rf "$work"' EXIT
run_tests counts_are_the_same samples_are_the_same branches_are_the_same sessions_do_not_notice

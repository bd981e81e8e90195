#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The perf tool with the module: the same figures as with the built-in driver,
# and a running perf that survives the change of drivers.
#
# Needs the perf tool in the guest (`scripts/vm run --perf`).

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"

# perf stat of a fixed program: "VALUE EVENT", one a line.
stat_of() {
	perf stat -x , -e "$1" -o "$work/stat" pmu_tool work 200000000 || return 1
	awk -F , 'NF > 2 { print $1, $3 }' "$work/stat"
}

agree() {
	unload
	must stat_of "$1" >"$work/in-tree"
	load
	must stat_of "$1" >"$work/rust"
	paste "$work/in-tree" "$work/rust" | tee "$work/both"
	[ "$(wc -l <"$work/both")" = 2 ] || fail "two events were asked for"
	awk -v apart="$apart" '
		$1 !~ /^[0-9]+$/ || $3 !~ /^[0-9]+$/ { exit 1 }
		$1 < 200000000 * 0.99 || $3 > $1 * (1 + apart / 100) || $3 < $1 * (1 - apart / 100) { exit 1 }
	' "$work/both" || fail "not counted, or more than $apart % apart"
}

generic_events_agree() { agree cycles,instructions; }
raw_events_agree() { agree r500fa,r600f4; }
groups_agree() { agree '{cycles,instructions}'; }
user_only_agrees() { agree cycles:u,instructions:u; }

system_wide() {
	load
	must perf stat -a -x , -e instructions -o "$work/stat" pmu_tool work 200000000
	cat "$work/stat"
	awk -F , '$3 ~ /instructions/ { seen = 1; exit($1 < 200000000 * 0.99) } END { if (!seen) exit 1 }' \
		"$work/stat" || fail "too few instructions"
}

record_finds_the_function() {
	load
	must perf record -q -e instructions -c 1000000 -o "$work/data" pmu_tool work 200000000
	must perf report -i "$work/data" --stdio --sort symbol >"$work/report"
	grep -v '^#' "$work/report" | head -5
	grep -E '^ *(9[0-9]|100)\.[0-9]+%.*pmu_work_a' "$work/report" ||
		fail "pmu_work_a has not nearly all samples"
}

# A perf that runs across the change ends well, with what it had counted till then.
stat_across_insmod() {
	unload
	watch_log
	perf stat -x , -e cycles,instructions -o "$work/stat" sleep 2 &
	perf=$!
	sleep 1
	load
	wait "$perf" || fail "perf ended with status $?"
	cat "$work/stat"
	[ "$(grep -cE '^([0-9]+|<not (counted|supported)>),' "$work/stat")" = 2 ] ||
		fail "two events were asked for"
	quiet
	must stat_of cycles,instructions
}

command -v perf >/dev/null || skip_all "there is no perf tool"
restore_at_end
run_tests generic_events_agree raw_events_agree groups_agree user_only_agrees \
	system_wide record_finds_the_function stat_across_insmod

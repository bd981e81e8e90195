#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The module in its ebb mode, beside the built-in driver: it comes and goes many
# times under live events, which are the built-in driver's and go on.
#
# usage: interposed.sh [TIMES]   (default 200; 50 on a kernel that checks itself)

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"

usual=200 most=1.02
! is_debug_kernel || usual=50 most=1.1
times=${1:-$usual}
work_done=20000000

swap() {
	must rmmod "$NAME"
	must insmod "$MODULE"
}

# Counts of known work: none is lost, and none counted twice. QEMU also counts the kernel, on a debug
# kernel some 4 %.
count_exactly() {
	must pmu_tool count "$work_done" >"$work/count"
	awk -v done="$work_done" -v most="$most" '
		$1 != "instructions" || $2 < done || $2 > done * most { exit 1 }
	' "$work/count" || fail "$work_done instructions done: $(cat "$work/count")"
}

tell_mode() {
	unload
	watch_log
	load
	[ "$(cat "/sys/module/$NAME/parameters/mode")" = ebb ] || fail "the mode is not ebb"
	lines=$(printed | grep "$NAME: " | grep -vc taint)
	[ "$lines" = 1 ] || fail "$lines lines instead of one"
	printed | grep -q "$NAME: .*mode ebb.*\"cpu\"" || fail "the line does not name mode and PMU"
	! insmod "$MODULE" mode=full 2>/dev/null || fail "the mode can be set"
	quiet
}

# An open EBB event keeps the module, which goes once it is closed.
ebb_events_pin() {
	load
	watch_log
	start_tool hold_ebb
	! rmmod "$NAME" 2>/dev/null || fail "rmmod succeeded although an EBB event is open"
	loaded || fail "the module is gone"
	stop_tool counting
	must rmmod "$NAME"
	count_exactly
	quiet
}

# swap_under COMMAND: the events of pmu_tool count on.
swap_under() {
	load
	watch_log
	start_tool "$1"
	for _ in $(seq "$times"); do
		swap
	done
	stop_tool "${2-counting}"
	count_exactly
	quiet
}

events_go_on() { swap_under hold; }
rotating_events_go_on() { swap_under rotate; }
software_events_go_on() { swap_under left; }
inherited_events_go_on() { swap_under inherit; }
opens_go_on() { swap_under churn "refused 0"; }

# Counts of work that is done while the module comes and goes.
counts_are_exact() {
	load
	watch_log
	for _ in $(seq $((times / 10))); do
		(
			count_exactly
		) &
		counting=$!
		swap
		wait "$counting" || fail "see above"
	done
	quiet
}

restore_at_end
run_tests tell_mode ebb_events_pin events_go_on rotating_events_go_on software_events_go_on \
	inherited_events_go_on opens_go_on counts_are_exact

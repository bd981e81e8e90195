#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The PMU changes hands many times while other programs count. Both drivers still count correctly.
#
# usage: takeover_stress.sh [TIMES]   (default 200; 50 on a kernel that checks itself)
#
# A change waits 0.1 s of guest time for RCU, which takes the host 2 s if other tasks work. So the
# tests expedite RCU after their first changes.

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"

usual=200
! is_debug_kernel || usual=50
times=${1:-$usual}

# pace CHANGE: expedites RCU, except for the changes with the first numbers.
pace() {
	echo $(($1 > 8)) >/sys/kernel/rcu_expedited || fail "RCU cannot be expedited"
}

# Removes the module as soon as no event is open, because open events keep it in use.
unload_in_the_end() {
	tries=0
	while loaded && ! rmmod "$NAME" 2>/dev/null; do
		tries=$((tries + 1))
		[ "$tries" -le 100000 ] || fail "still in use after $tries tries"
	done
}

# Without other programs, each change succeeds at once.
change_hands_alone() {
	load
	watch_log
	for change in $(seq "$times"); do
		pace "$change"
		must rmmod "$NAME"
		must insmod "$MODULE"
	done
	must pmu_tool count
	unload
	must pmu_tool count
	quiet
}

# Opens of all kinds of events race with insmod and rmmod.
change_hands_beside_opens() {
	load
	watch_log
	start_tool churn
	for change in $(seq $((times / 4))); do
		pace "$change"
		unload_in_the_end
		must insmod "$MODULE"
	done
	stop_tool opened
	cat "$work/tool"
	must pmu_tool count
	unload
	must pmu_tool count
	quiet
}

# revoke_again_and_again COMMAND: inserts the module repeatedly while events of pmu_tool are open,
# so that each insmod revokes some.
revoke_again_and_again() {
	watch_log
	for change in $(seq $((times / 10))); do
		pace "$change"
		unload
		start_tool "$1"
		must insmod "$MODULE"
		stop_tool revoked
	done
	must pmu_tool count
	quiet
}

revoke_live_events() {
	revoke_again_and_again hold
}

# Threads inherit events during each insmod.
revoke_while_inherited() {
	revoke_again_and_again inherit
}

restore_at_end
trap 'echo 0 >/sys/kernel/rcu_expedited; $at_start; rm -rf "$work"' EXIT
run_tests change_hands_alone change_hands_beside_opens \
	revoke_live_events revoke_while_inherited

#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The PMU changes hands many times while others count: nothing breaks, and both
# drivers still count right.
#
# usage: takeover_stress.sh [TIMES]   (default 200; 50 on a kernel that checks itself)
#
# A change waits for RCU 0.1 s of the guest's time, which beside others that work takes
# the host 2 s. So RCU is told to hurry after the first changes of each test.

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"

usual=200
! is_debug_kernel || usual=50
times=${1:-$usual}

# pace CHANGE: by its number, whether this change waits as long as RCU takes by itself.
pace() {
	echo $(($1 > 8)) >/sys/kernel/rcu_expedited || fail "RCU cannot be told to hurry"
}

# The module goes as soon as nobody holds it; whoever counts, holds it.
unload_in_the_end() {
	tries=0
	while loaded && ! rmmod "$NAME" 2>/dev/null; do
		tries=$((tries + 1))
		[ "$tries" -le 100000 ] || fail "still in use after $tries tries"
	done
}

# Nobody else: each change succeeds at once.
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

# Opens of every kind race with insmod and rmmod.
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

# revoke_again_and_again COMMAND: live events of pmu_tool at each insmod, so that each
# revokes some.
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

# Each insmod meets threads that inherit events just then.
revoke_while_inherited() {
	revoke_again_and_again inherit
}

restore_at_end
trap 'echo 0 >/sys/kernel/rcu_expedited; $at_start; rm -rf "$work"' EXIT
run_tests change_hands_alone change_hands_beside_opens \
	revoke_live_events revoke_while_inherited

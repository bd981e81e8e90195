#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The PMU changes hands many times while others count: nothing breaks, and both
# drivers still count right.
#
# usage: takeover_stress.sh [TIMES]   (default 200; 50 on a kernel that checks itself)
#
# A change waits for RCU 0.1 s of the guest's time. Alone the guest idles meanwhile;
# beside others it works, and takes the host 2 s: so there are fewer changes then.

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"

usual=200
! is_debug_kernel || usual=50
times=${1:-$usual}

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
	for _ in $(seq "$times"); do
		must rmmod "$NAME"
		must insmod "$MODULE"
	done
	must pmu_tool count
	unload
	must pmu_tool count
	quiet
}

# A loop of short counts, as of "perf stat". What they get while the PMU changes
# hands is an error or a count; afterwards it has to be a count.
change_hands_beside_counting() {
	load
	watch_log
	(while :; do pmu_tool count 100000 >/dev/null 2>&1; done) &
	loop=$!
	for _ in $(seq $((times / 4))); do
		unload_in_the_end
		must insmod "$MODULE"
	done
	kill "$loop"
	wait "$loop" 2>/dev/null
	must pmu_tool count
	unload_in_the_end
	must pmu_tool count
	quiet
}

# Opens of every kind race with insmod and rmmod.
change_hands_beside_opens() {
	load
	watch_log
	start_tool churn
	for _ in $(seq $((times / 4))); do
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

# Live events at each insmod, so that each revokes some.
revoke_again_and_again() {
	watch_log
	for _ in $(seq $((times / 10))); do
		unload
		start_tool hold
		must insmod "$MODULE"
		stop_tool revoked
	done
	must pmu_tool count
	quiet
}

restore_at_end
run_tests change_hands_alone change_hands_beside_counting change_hands_beside_opens \
	revoke_again_and_again

#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The PMU changes hands many times while others count: nothing breaks, and both
# drivers still count right.
#
# usage: takeover_stress.sh [TIMES]   (default 200; 50 on a kernel that checks itself)

# The tests are called by `try`, by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/ktap.sh
. "$(dirname "$0")/ktap.sh"

usual=200
! is_debug_kernel || usual=50
times=${1:-$usual}

# The module goes as soon as nobody holds it; whoever counts, holds it.
unload_in_the_end() {
	tries=0
	while loaded && ! rmmod "$NAME" 2>/dev/null; do
		tries=$((tries + 1))
		if [ "$tries" -gt 100000 ]; then
			why "still in use after $tries tries"
			exit 1
		fi
	done
}

# Nobody else: each change succeeds at once.
change_hands_alone() {
	load
	mark
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
	mark
	(while :; do pmu_tool count 100000 >/dev/null 2>&1; done) &
	loop=$!
	for _ in $(seq "$times"); do
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
	mark
	start_tool churn
	for _ in $(seq $((times / 4))); do
		unload_in_the_end
		must insmod "$MODULE"
	done
	stop_tool churn
	cat "$work/out.churn"
	must pmu_tool count
	unload
	must pmu_tool count
	quiet
}

# Live events at each insmod, so that each revokes some.
revoke_again_and_again() {
	mark
	for _ in $(seq $((times / 10))); do
		unload
		start_tool hold
		wait_for_line "$work/out.hold"
		must insmod "$MODULE"
		stop_tool hold
		grep -q revoked "$work/out.hold" || {
			why "$(cat "$work/out.hold")"
			return 1
		}
		rm "$work/out.hold"
	done
	must pmu_tool count
	quiet
}

begin

plan 4
echo "# $times times"
try change_hands_alone
try change_hands_beside_counting
try change_hands_beside_opens
try revoke_again_and_again
finish_as_begun

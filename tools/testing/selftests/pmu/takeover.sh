#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The module takes the PMU over from the kernel's built-in driver and gives it back. The visible
# effects are as documented, and both drivers work afterwards.
#
# Runs as root in a guest, with the programs of this folder beside it. The module may be inserted or
# not at the start, and is in the same state at the end.

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"

tell_one_line() {
	unload
	watch_log
	load
	printed
	# The kernel's own line about out-of-tree modules does not count.
	lines=$(printed | grep "$NAME: " | grep -vc taint)
	[ "$lines" = 1 ] || fail "$lines lines instead of one"
	printed | grep "$NAME: " | grep -q '"cpu"' ||
		fail "the line does not name the PMU that was taken over"
	quiet
}

# Open events of the module's PMU keep the module from being removed.
open_events_pin() {
	load
	start_tool hold
	! rmmod "$NAME" || fail "rmmod succeeded although events are open"
	loaded || fail "the module is gone"
	stop_tool counting
	unload
	must pmu_tool count
}

# Open events of the built-in driver do not keep the module from being inserted. They are revoked,
# and both drivers work while they are still open.
live_events_are_revoked() {
	unload
	watch_log
	start_tool hold
	for change in load unload load; do
		$change
		must pmu_tool count
	done
	stop_tool revoked
	must pmu_tool count
	quiet
}

# A program with Event Based Branches is notified that it has lost the PMU.
sessions_are_revoked() {
	unload
	watch_log
	must libebb_revoked "insmod $MODULE"
	quiet
	unload
	must pmu_tool count
}

# Software events of groups whose hardware events are closed do not keep the module from being
# removed. But they are in a context of the PMU that is unregistered.
software_events_go_with_their_group() {
	watch_log
	load
	start_tool left
	unload
	must pmu_tool count
	stop_tool revoked
	start_tool left
	load
	must pmu_tool count
	stop_tool revoked
	quiet
}

# perf core has a timer for each PMU, which makes events take turns on a counter. It is armed nearly
# all the time while there are such events. With turns this long, it does not fire before the PMU is
# freed, which a debug kernel reports as a bug. Work under both drivers gives a timer that remained
# armed the time to fire.
timer_goes_with_its_pmu() {
	unload
	watch_log
	for _ in 1 2 3 4 5; do
		echo 500 >/sys/bus/event_source/devices/cpu/perf_event_mux_interval_ms
		start_tool rotate
		load
		stop_tool revoked
		must pmu_tool count 50000000
		unload
		must pmu_tool count 50000000
	done
	quiet
}

# A CPU that is offline while the PMU changes hands has the new driver when it is online again.
cpu_away_meanwhile() {
	away=/sys/devices/system/cpu/cpu1/online
	[ -e "$away" ] || skip "needs two CPUs"
	watch_log
	load
	must taskset 2 pmu_tool count
	for state in unload load; do
		echo 0 >"$away"
		$state
		must pmu_tool count
		echo 1 >"$away"
		must taskset 2 pmu_tool count
	done
	quiet
}

# While the module is inserted, a program without events may not read the PMU's registers on any
# CPU, including one that comes online later. After its removal, access is as before.
registers_are_closed_meanwhile() {
	unload
	before=$(taskset 1 pmu_tool mmcr0) || before=closed
	load
	must ebb_isolation
	away=/sys/devices/system/cpu/cpu1/online
	if [ -e "$away" ]; then
		echo 0 >"$away"
		echo 1 >"$away"
		! taskset 2 pmu_tool mmcr0 || fail "CPU 1 is open after it was away"
	fi
	unload
	after=$(taskset 1 pmu_tool mmcr0) || after=closed
	[ "$before" = "$after" ] || fail "MMCR0 was $before and is $after"
	must pmu_tool count
}

restore_at_end
run_tests tell_one_line open_events_pin live_events_are_revoked \
	sessions_are_revoked software_events_go_with_their_group timer_goes_with_its_pmu \
	cpu_away_meanwhile registers_are_closed_meanwhile

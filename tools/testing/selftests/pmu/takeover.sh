#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The module takes the PMU over from the kernel's built-in driver and gives it
# back: what can be seen of that, and that neither driver breaks.
#
# Runs in a guest as root, with the programs of this folder beside it; the module
# may be inserted or not, and is as it was at the end.

# The tests are called by `try`, by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/ktap.sh
. "$(dirname "$0")/ktap.sh"

tell_one_line() {
	unload
	mark
	load
	printed
	# The kernel's own line about out-of-tree modules is not ours.
	lines=$(printed | grep "$NAME: " | grep -vc taint)
	[ "$lines" = 1 ] || {
		why "$lines lines instead of one"
		return 1
	}
	printed | grep "$NAME: " | grep -q '"cpu"' || {
		why "the line does not name the PMU that was taken over"
		return 1
	}
	quiet
}

insert_twice() {
	load
	if insmod "$MODULE"; then
		why "a second insmod succeeded"
		return 1
	fi
	must pmu_tool count
}

same_identity() {
	for state in unload load; do
		$state
		type=$(cat /sys/bus/event_source/devices/cpu/type) || return 1
		[ "$type" = 4 ] || {
			why "after $state the type is $type"
			return 1
		}
		[ -e /sys/bus/event_source/devices/cpu/events/cpu-cycles ] || {
			why "after $state there are no named events"
			return 1
		}
	done
}

counts_after_return() {
	load
	must pmu_tool count
	unload
	must pmu_tool count
	load
	must pmu_tool count
}

# The counts of one program under both drivers, in the same boot.
drivers_agree() {
	unload
	must pmu_tool count 100000000 >"$work/in-tree"
	load
	must pmu_tool count 100000000 >"$work/rust"
	cat "$work/in-tree" "$work/rust"
	cat "$work/in-tree" "$work/rust" | awk -v apart="$apart" '
		NR == 1 { instructions = $2; cycles = $4 }
		NR == 2 { exit(far($2, instructions) || far($4, cycles)) }
		function far(a, b) { return a > b * (1 + apart / 100) || a < b * (1 - apart / 100) }
	' || {
		why "more than $apart % apart"
		return 1
	}
}

# Events of the module's PMU hold it.
open_events_pin() {
	load
	start_tool hold
	wait_for_line "$work/out.hold"
	if rmmod "$NAME"; then
		why "rmmod succeeded although events are open"
		return 1
	fi
	loaded || {
		why "the module is gone"
		return 1
	}
	stop_tool hold
	grep -q counting "$work/out.hold" || {
		why "the events did not survive: $(cat "$work/out.hold")"
		return 1
	}
	unload
	must pmu_tool count
}

# Events of the built-in driver do not: they are revoked.
live_events_are_revoked() {
	unload
	mark
	start_tool hold
	wait_for_line "$work/out.hold"
	load
	must pmu_tool count
	stop_tool hold
	grep -q revoked "$work/out.hold" || {
		why "not revoked: $(cat "$work/out.hold")"
		return 1
	}
	quiet
	unload
	must pmu_tool count
}

# perf core has a timer for each PMU by which events take turns on a counter; it is
# armed nearly all the time while there are such events. With turns as long as this
# it does not fire before the PMU is freed, for which a debug kernel reports it. With
# both drivers gone through, what either left behind has had its time to fire.
timer_goes_with_its_pmu() {
	unload
	mark
	for round in 1 2 3 4 5; do
		echo 500 >/sys/bus/event_source/devices/cpu/perf_event_mux_interval_ms
		start_tool rotate
		wait_for_line "$work/out.rotate"
		load
		stop_tool rotate
		grep -q revoked "$work/out.rotate" || {
			why "round $round, not revoked: $(cat "$work/out.rotate")"
			return 1
		}
		must pmu_tool count 50000000
		unload
		must pmu_tool count 50000000
	done
	quiet
}

# Revoked events are still open, and of no weight: neither driver minds.
revoked_events_are_no_burden() {
	unload
	mark
	start_tool hold
	wait_for_line "$work/out.hold"
	load
	unload
	must pmu_tool count
	load
	stop_tool hold
	must pmu_tool count
	quiet
}

wrong_parameter() {
	unload
	# An unknown parameter is ignored by the kernel, with a line that says so.
	must insmod "$MODULE" no_such_parameter=1
	must pmu_tool count
}

# A CPU that is away while the PMU changes hands is the new owner's when it is back.
cpu_away_meanwhile() {
	away=/sys/devices/system/cpu/cpu1/online
	[ -e "$away" ] || {
		why "needs two CPUs"
		return "$SKIP"
	}
	mark
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

begin

plan 11
try tell_one_line
try insert_twice
try same_identity
try counts_after_return
try drivers_agree
try open_events_pin
try live_events_are_revoked
try timer_goes_with_its_pmu
try revoked_events_are_no_burden
try wrong_parameter
try cpu_away_meanwhile
finish_as_begun

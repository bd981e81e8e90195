#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The hypervisor is told when a CPU's PMU is in use (H_PERFMON): by the first
# event there, and again after the CPU was away, as it may be another one then.
#
# Runs in a guest with two CPUs as root, with the programs of this folder beside
# it, under the driver that has the PMU.

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"

TRACING=/sys/kernel/tracing
CPU1=/sys/devices/system/cpu/cpu1/online
# Number of the hypercall (arch/powerpc/include/asm/hvcall.h).
H_PERFMON=124

# Sets `told` to the number of times that CPU 1 makes the call while an event
# counts there.
count_calls() {
	echo >"$TRACING/trace"
	echo 1 >"$TRACING/events/powerpc/hcall_entry/enable"
	must taskset 2 pmu_tool count
	echo 0 >"$TRACING/events/powerpc/hcall_entry/enable"
	told=$(grep -c "\[001\].* opcode=$H_PERFMON\$" "$TRACING/trace")
}

told_again() {
	[ -e "$CPU1" ] || skip "needs two CPUs"
	[ -e "$TRACING/events" ] || mount -t tracefs tracefs "$TRACING"
	[ -e "$TRACING/events/powerpc/hcall_entry" ] || skip "the kernel has no tracepoint for hypercalls"
	# Whatever was told before, it is known then.
	must taskset 2 pmu_tool count
	for round in 1 2 3; do
		count_calls
		[ "$told" = 0 ] || fail "round $round: told $told times although the CPU stayed"
		echo 0 >"$CPU1"
		echo 1 >"$CPU1"
		count_calls
		[ "$told" = 1 ] || fail "round $round: told $told times after the CPU's return"
	done
}

run_tests told_again

#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The kernel notifies the hypervisor that a CPU's PMU is in use (H_PERFMON): at the first event
# there, and again after the CPU was offline, because it may be another physical CPU afterwards.
#
# Runs as root in a guest with two CPUs, with the programs of this folder beside it, under the
# driver that has the PMU.

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"

TRACING=/sys/kernel/tracing
CPU1=/sys/devices/system/cpu/cpu1/online
# Number of the hypercall (arch/powerpc/include/asm/hvcall.h).
H_PERFMON=124

# Counts the hypercalls of CPU 1 while an event counts there. Sets the variable `calls`.
count_calls() {
	echo >"$TRACING/trace"
	echo 1 >"$TRACING/events/powerpc/hcall_entry/enable"
	must taskset 2 pmu_tool count
	echo 0 >"$TRACING/events/powerpc/hcall_entry/enable"
	calls=$(grep -c "\[001\].* opcode=$H_PERFMON\$" "$TRACING/trace")
}

told_again() {
	[ -e "$CPU1" ] || skip "needs two CPUs"
	[ -e "$TRACING/events" ] || mount -t tracefs tracefs "$TRACING"
	[ -e "$TRACING/events/powerpc/hcall_entry" ] || skip "the kernel has no tracepoint for hypercalls"
	# After this event the hypervisor is notified, whatever ran before.
	must taskset 2 pmu_tool count
	for round in 1 2 3; do
		count_calls
		[ "$calls" = 0 ] || fail "round $round: $calls notifications although the CPU stayed online"
		echo 0 >"$CPU1"
		echo 1 >"$CPU1"
		count_calls
		[ "$calls" = 1 ] || fail "round $round: $calls notifications after the CPU's return"
	done
}

run_tests told_again

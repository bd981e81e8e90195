#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Programs on a CPU without a tick (nohz_full), under the built-in driver and under the module, in
# one boot. EBBs are tested under the module only.
#
# Needs two CPUs, the second one without a tick (`scripts/vm run --smp 2 --append nohz_full=1`).

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"

# CPU 1 as a mask.
SECOND=2

ticks() {
	awk '$1 == "LOC:" { print $3; exit }' /proc/interrupts
}

# Checks that the tick rarely interrupts a program alone on the CPU. The other tests rely on that.
the_tick_stops() {
	grep -qw 1 /sys/devices/system/cpu/nohz_full || fail "the CPU keeps its tick"
	before=$(ticks)
	must taskset "$SECOND" pmu_tool work 2000000000
	after=$(ticks)
	echo "$((after - before)) ticks in two seconds"
	[ "$((after - before))" -lt 100 ] || fail "the tick went on"
}

counting() {
	must taskset "$SECOND" drivers_compare.sh run_pmu_selftests pmu_count pmu_read pmu_multiplex
}

sampling() {
	must taskset "$SECOND" drivers_compare.sh run_pmu_selftests pmu_sampling pmu_sample_fields pmu_new_period
}

ebbs() {
	load
	must taskset "$SECOND" run_ebb_selftests ebb_counting ebb_session ebb_close ebb_restart ebb_switch
}

restore_at_end
# The tests of sampling come last: they remove the kernel's limit on sampling time, which
# ebb_restart sets.
run_tests the_tick_stops ebbs counting sampling

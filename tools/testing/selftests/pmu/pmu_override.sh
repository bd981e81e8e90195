#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# On a kernel that leaves the PMU to other code (pmu_override=, bare metal only), the module cannot
# be inserted and prints the reason.

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"

# Succeeds if PMC6 counts, which the kernel allows on such a boot.
counters_run() {
	first=$(cat /sys/devices/system/cpu/cpu0/pmc6)
	second=$(cat /sys/devices/system/cpu/cpu0/pmc6)
	[ "$first" != "$second" ]
}

module_is_refused() {
	watch_log
	answer=$(pmu_tool insert "$MODULE" 2>&1)
	[ "$answer" = "No such device (os error 19)" ] || fail "not ENODEV: $answer"
	printed | grep -q "$NAME: .*pmu_override=" || fail "without a reason: $(printed)"
	! loaded || fail "the module is there"
	[ ! -e "/sys/module/$NAME" ] || fail "parts of the module remain"
	quiet
}

pmu_is_left_alone() {
	counters_run || skip "the counters stand still"
	! insmod "$MODULE" || fail "insmod succeeded"
	counters_run || fail "the counters have been stopped"
}

# Such a kernel offers no EBBs to programs. ebbprof's check reports that first.
ebbs_are_not_offered() {
	! "$programs/ebbprof" check >"$work/said" || fail "ebbprof check finds EBBs"
	cat "$work/said"
	must grep -q '^FAILED *EBB (HWCAP2): not offered' "$work/said"
	must grep -q '^FAILED *an EBB event: ' "$work/said"
}

grep -q pmu_override= /proc/cmdline || skip_all "the kernel has its PMU: no pmu_override="
run_tests module_is_refused pmu_is_left_alone ebbs_are_not_offered

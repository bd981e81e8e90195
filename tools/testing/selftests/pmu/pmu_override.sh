#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# On a kernel that is told to leave the PMU to somebody else (pmu_override=, bare metal
# only), the module cannot be inserted and says why.

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"

# Whether PMC6 counts, as the kernel lets it on such a boot.
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
	[ ! -e "/sys/module/$NAME" ] || fail "the module is not gone"
	quiet
}

pmu_is_left_alone() {
	counters_run || skip "the counters stand still"
	! insmod "$MODULE" || fail "insmod succeeded"
	counters_run || fail "the counters have been stopped"
}

# Such a kernel offers programs no EBBs, which is the first that ebbprof tells.
ebbs_are_not_offered() {
	! "$programs/ebbprof" check >"$work/said" || fail "EBBs are to be had"
	cat "$work/said"
	must grep -q '^FAILED *EBB (HWCAP2): not offered' "$work/said"
	must grep -q '^FAILED *an EBB event: ' "$work/said"
}

grep -q pmu_override= /proc/cmdline || skip_all "the kernel has its PMU: no pmu_override="
run_tests module_is_refused pmu_is_left_alone ebbs_are_not_offered

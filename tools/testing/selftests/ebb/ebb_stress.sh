#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# 64 processes with Event Based Branches of their own (ebb_stress), alone and while other commands
# disturb the PMU: perf stat and perf record of all CPUs, CPUs that go offline and online, attempts
# to remove and insert the module.
#
# usage: ebb_stress.sh [--library] [--rounds N] [--seed N] [--instructions] [--lossy] [TEST...]
#
#   --library    processes that use sessions of the library
#   --rounds N   rounds of each process in each test (default 40)
#   --seed N     another course of events
#   --instructions
#                count these rather than cycles, as an emulator without an
#                instruction clock (scripts/vm --icount off) cannot do EBBs of cycles
#   --lossy      EBBs may be lost; nevertheless no process may get the EBB of another one
#   TEST         only these: alone, beside_perf_stat, beside_perf_record,
#                beside_hotplug, beside_rmmod, beside_all, reloaded

# run_tests calls the tests by name.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"
# shellcheck source=tools/testing/selftests/pmu/disturb.sh
. "$programs/disturb.sh"

# Fewest times that each disturbance must occur: one may be before most processes have started,
# another after most have ended.
least_times=3
rounds=40 seed=1 options=
while [ $# -gt 0 ]; do
	case $1 in
	--rounds) rounds=$2 && shift 2 ;;
	--seed) seed=$2 && shift 2 ;;
	--instructions) options="$options $1" counted=instructions pair=r20002,r10002 && shift ;;
	--library | --lossy) options="$options $1" && shift ;;
	-*)
		echo "usage: ebb_stress.sh [--library] [--rounds N] [--seed N] [--instructions] [--lossy] [TEST...]" >&2
		exit 2
		;;
	*) break ;;
	esac
done
# stress [FUNCTION...]: run the processes with these disturbances.
stress() {
	# shellcheck disable=SC2086
	beside "$*" ebb_stress --processes 64 --rounds "$rounds" --seed "$seed" $options
	silent
	must pmu_tool count
}

# Check that the kernel printed nothing since watch_log, except about processes that had to leave a
# CPU, and the deepest stacks that a debug kernel reports.
silent() {
	! printed | grep -v -e 'no longer affine to cpu' -e 'used greatest stack depth' ||
		fail "the kernel printed something"
}

alone() {
	stress
}

beside_perf_stat() {
	needs_perf
	stress perf_stat
}

beside_perf_record() {
	needs_perf
	stress perf_record perf_record_branches perf_record_task
}

beside_hotplug() {
	needs_cpus
	stress hotplug
}

beside_rmmod() {
	needs_module
	stress rmmod_insmod
}

beside_all() {
	needs_perf
	needs_module
	set -- perf_stat perf_record rmmod_insmod
	# If there is only one CPU it stays online.
	[ "$number_of_cpus" -eq 1 ] || {
		set -- "$@" hotplug
		cpus_come_and_go=yes
	}
	stress "$@"
}

# The module is removed and inserted each time that the processes have just ended, when EBBs of
# theirs may still be pending.
reloaded() {
	needs_module
	watch_log
	for turn in $(seq 5); do
		# shellcheck disable=SC2086
		must ebb_stress --processes 16 --rounds "$rounds" --seed "$turn" $options </dev/null
		must rmmod "$NAME"
		must insmod "$MODULE"
	done
	quiet
	must pmu_tool count
}

# Handlers take long in an emulator; this keeps the kernel from lowering the sample rate.
echo 100 >/proc/sys/kernel/perf_cpu_time_max_percent

[ $# -gt 0 ] || set -- alone beside_perf_stat beside_perf_record beside_hotplug beside_rmmod \
	beside_all reloaded
run_tests "$@"

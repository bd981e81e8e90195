#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# 64 processes with Event Based Branches of their own (ebb_stress), alone and
# beside whatever disturbs a PMU: perf stat and perf record of all CPUs, CPUs that
# go away and come back, attempts to remove and insert the module.
#
# usage: ebb_stress.sh [--library] [--rounds N] [--seed N] [--instructions] [--lossy] [TEST...]
#
#   --library    processes that use sessions of the library
#   --rounds N   rounds of each process in each test (default 40)
#   --seed N     another course of events
#   --instructions
#                count these rather than cycles, as an emulator without an
#                instruction clock (scripts/vm --icount off) cannot do EBBs of cycles
#   --lossy      EBBs may get lost on their way; no foreign one may come all the same
#   TEST         these only: alone, beside_perf_stat, beside_perf_record,
#                beside_hotplug, beside_rmmod, beside_all, reloaded

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"
# shellcheck source=tools/testing/selftests/pmu/disturb.sh
. "$programs/disturb.sh"

# One may come before most processes have got going, or when most have ended.
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
# stress [FUNCTION...]: the processes, with these disturbances.
stress() {
	# shellcheck disable=SC2086
	beside "$*" ebb_stress --processes 64 --rounds "$rounds" --seed "$seed" $options
	silent
	must pmu_tool count
}

# The kernel printed nothing since watch_log, but for who had to leave a CPU, and what
# a debug kernel finds of note.
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
	# Of one CPU none goes.
	[ "$number_of_cpus" -eq 1 ] || {
		set -- "$@" hotplug
		cpus_come_and_go=yes
	}
	stress "$@"
}

# The module goes and comes back each time that the processes have just ended,
# whatever of theirs was due.
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

# An emulator's handler takes long; the kernel is not to lower the rate for it.
echo 100 >/proc/sys/kernel/perf_cpu_time_max_percent

[ $# -gt 0 ] || set -- alone beside_perf_stat beside_perf_record beside_hotplug beside_rmmod \
	beside_all reloaded
run_tests "$@"

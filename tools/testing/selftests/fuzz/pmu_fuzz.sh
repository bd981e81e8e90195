#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Processes that do to the PMU anything that a program can, chosen by a seed (pmu_fuzz): alone and
# while other commands disturb the PMU.
#
# usage: pmu_fuzz.sh [--seed N] [--lives N] [--processes N] [--no-hotplug] [--unlimited] [TEST...]
#
#   --seed N       another course of events
#   --lives N      lives of each process in each test (default 4)
#   --processes N  processes beside four bystanders (default 16)
#   --no-hotplug   no CPU goes offline
#   --unlimited    samples and EBBs as often as events request them, except in beside_all
#   TEST           only these: alone, beside_all, swapped

# run_tests calls the tests by name.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"
# shellcheck source=tools/testing/selftests/pmu/disturb.sh
. "$programs/disturb.sh"

seed=1 lives=4 processes=16 hotplug=hotplug unlimited=
while [ $# -gt 0 ]; do
	case $1 in
	--seed) seed=$2 && shift 2 ;;
	--lives) lives=$2 && shift 2 ;;
	--processes) processes=$2 && shift 2 ;;
	--no-hotplug) hotplug= && shift ;;
	--unlimited) unlimited=yes && shift ;;
	-*)
		echo "usage: pmu_fuzz.sh [--seed N] [--lives N] [--processes N] [--no-hotplug] [--unlimited] [TEST...]" >&2
		exit 2
		;;
	*) break ;;
	esac
done

# On a kernel that checks itself, samples without a limit would leave no time for other work.
! is_debug_kernel || unlimited=

# A kernel that checks itself takes several times as long for a sample and for an EBB's signal. With
# periods shorter than that no other work would proceed. And the longer a life, the fewer marks of
# other processes can be recognised.
least=
! is_debug_kernel || { least='--least-period 20000 --least-ebb 1000 --steps 50' && lives=$((4 * lives)); }

# limit_samples [RATE]: limit the samples of each event in a second. The default leaves half of the
# time for other work: an event gets some samples in a tick, then none until the next.
limit_samples() {
	rate=2500
	[ ! "$unlimited" ] || rate=100000
	(cd /proc/sys/kernel && echo 99 >perf_cpu_time_max_percent && echo "${1:-$rate}" >perf_event_max_sample_rate &&
		echo 100 >perf_cpu_time_max_percent)
}

# fuzz_beside "FUNCTION..."
fuzz_beside() {
	# shellcheck disable=SC2086
	beside "$1" pmu_fuzz --processes "$processes" --lives "$lives" --seed "$seed" $least
	quiet
	must pmu_tool count
}

alone() {
	limit_samples
	fuzz_beside ''
}

# CPUs go offline and online, perf counts events and records branches on all CPUs, and the module
# cannot be removed.
beside_all() {
	needs_perf
	needs_module
	functions='perf_stat perf_record perf_record_branches rmmod_insmod'
	[ "$number_of_cpus" -eq 1 ] || [ ! "$hotplug" ] || functions="$functions hotplug" cpus_come_and_go=yes
	# These leave little time: a process with a signal for every sample would do nothing but
	# handle signals.
	limit_samples 2500
	fuzz_beside "$functions"
}

# Events of all kinds while the PMU changes hands: the module is removed whenever no event is open.
# The built-in driver ignores marks, and loses EBBs.
swapped() {
	needs_module
	watch_log
	limit_samples
	# shellcheck disable=SC2086
	pmu_fuzz --seed "$seed" $least --no-ebb --unchecked --release --least-period 20000 --processes 2 --lives 32 \
		</dev/null >"$work/fuzz" 2>&1 &
	fuzz=$!
	swaps=0 refused=
	# Each change waits for RCU, while no driver owns the PMU.
	echo 1 >/sys/kernel/rcu_expedited
	while kill -0 "$fuzz" 2>/dev/null; do
		! loaded || ! rmmod "$NAME" 2>/dev/null || swaps=$((swaps + 1))
		loaded || insmod "$MODULE" || refused=yes
	done
	wait "$fuzz"
	status=$?
	echo 0 >/sys/kernel/rcu_expedited
	cat "$work/fuzz"
	echo "swaps $swaps"
	[ "$swaps" -ge 4 ] || fail "the module was removed only $swaps times"
	[ "$status" -eq 0 ] || fail "pmu_fuzz gave status $status"
	[ ! "$refused" ] || fail "the module could not be inserted"
	load
	quiet
	must pmu_tool count
}

[ $# -gt 0 ] || set -- alone beside_all swapped
run_tests "$@"

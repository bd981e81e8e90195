#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# 64 processes with Event Based Branches of their own (ebb_stress), alone and
# beside whatever disturbs a PMU: perf stat and perf record of all CPUs, CPUs that
# go away and come back, attempts to remove and insert the module.
#
# usage: ebb_stress.sh [--library] [--rounds N] [--seed N] [--instructions] [--lossy] [TEST...]
#
#   --library    processes that use libebb (libebb_stress) rather than the crate
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

rounds=40 seed=1 stress_program=ebb_stress options=
while [ $# -gt 0 ]; do
	case $1 in
	--library) stress_program=libebb_stress && shift ;;
	--rounds) rounds=$2 && shift 2 ;;
	--seed) seed=$2 && shift 2 ;;
	--instructions | --lossy) options="$options $1" && shift ;;
	-*)
		echo "usage: ebb_stress.sh [--library] [--rounds N] [--seed N] [--instructions] [--lossy] [TEST...]" >&2
		exit 2
		;;
	*) break ;;
	esac
done
cpus=/sys/devices/system/cpu cpus_come_and_go=no

# What disturbs: each function disturbs once. A status other than 0 says that it
# went wrong itself.

# perf fails if a CPU goes away between its look at them and its open.
of_all_cpus() {
	"$@" >"$work/perf" 2>&1 || [ "$cpus_come_and_go" = yes ] || {
		cat "$work/perf"
		return 1
	}
}

perf_stat() {
	of_all_cpus perf stat -a -x , -e cycles,instructions -e '{r20002,r1001e}' \
		-o "$work/stat" -- sleep 0.01
}

perf_record() {
	of_all_cpus perf record -q -a -e cycles -c 1000003 -o "$work/data" -- sleep 0.01
}

# Branch stacks, from POWER10 on with branches in them.
perf_record_branches() {
	of_all_cpus perf record -q -a -j any,u -e cycles:u -c 1000003 -o "$work/data.branches" \
		-- sleep 0.01
}

perf_record_task() {
	perf record -q -e instructions -c 100003 -o "$work/data.task" -- pmu_tool work 3000000
}

# All go away but one, which is another one each time; then all come back.
stays=0
hotplug() {
	for online in "$cpus"/cpu[0-9]*/online; do
		echo 1 >"$online" || return
	done
	for online in "$cpus"/cpu[0-9]*/online; do
		[ "$online" = "$cpus/cpu$stays/online" ] || echo 0 >"$online" || return
	done
	sleep 0.01
	for online in "$cpus"/cpu[0-9]*/online; do
		echo 1 >"$online" || return
	done
	stays=$(((stays + 1) % number_of_cpus))
}

# refused ERROR COMMAND...: the command of pmu_tool ends with this error.
refused() {
	error=$1
	shift
	answer=$(pmu_tool "$@" 2>&1)
	[ "$answer" = "$error" ] || {
		echo "$1: $answer, not $error"
		return 1
	}
}

# With events open both are refused, and the module stays as it is. That a module is in
# use is EAGAIN ("Module is in use" of some programs).
rmmod_insmod() {
	refused EAGAIN remove "$NAME" && refused EEXIST insert "$MODULE" && loaded
}

# disturb FUNCTION: does so again and again until told to end; leaves the number of times.
disturb() {
	times=0
	while [ -e "$work/disturb" ]; do
		"$1" >"$work/said.$1" 2>&1 || {
			echo "$1: status $?: $(cat "$work/said.$1")" >>"$work/wrong"
			break
		}
		times=$((times + 1))
	done
	echo "$1 $times" >>"$work/times"
}

# beside FUNCTION...: the stress with these disturbances.
beside() {
	: >"$work/out"
	: >"$work/wrong"
	: >"$work/times"
	: >"$work/disturb"
	rm -f "$work/stdin"
	mkfifo "$work/stdin"
	watch_log
	# shellcheck disable=SC2086
	"$stress_program" --processes 64 --rounds "$rounds" --seed "$seed" $options \
		<"$work/stdin" >"$work/result" 2>&1 &
	stress=$!
	# It holds its events until this is closed, so the module cannot go.
	exec 9>"$work/stdin"
	until grep -q '^ready' "$work/result"; do
		kill -0 "$stress" 2>/dev/null || break
		sleep 0.01
	done
	disturbers=
	for function; do
		# Before all the others, or they would be done before it has begun.
		disturb "$function" 9>&- &
		renice -n -15 -p $! >/dev/null
		disturbers="$disturbers $!"
	done
	until grep -q '^total' "$work/result"; do
		kill -0 "$stress" 2>/dev/null || break
		sleep 0.05
	done
	rm "$work/disturb"
	# shellcheck disable=SC2086
	[ -z "$disturbers" ] || wait $disturbers
	exec 9>&-
	wait "$stress"
	status=$?
	sed 's/^/ /' "$work/result"
	cat "$work/times"
	[ "$status" -ne "$SKIP" ] || skip "no EBB on this machine"
	[ "$status" -eq 0 ] || fail "$stress_program gave status $status"
	[ ! -s "$work/wrong" ] || fail "$(cat "$work/wrong")"
	! grep ' 0$' "$work/times" || fail "nothing disturbed"
	silent
	must pmu_tool count
}

# The kernel printed nothing since watch_log, but for who had to leave a CPU, and what
# a debug kernel finds of note.
silent() {
	! printed | grep -v -e 'no longer affine to cpu' -e 'used greatest stack depth' ||
		fail "the kernel printed something"
}

needs_perf() {
	command -v perf >/dev/null || skip "there is no perf tool"
}

needs_cpus() {
	[ "$number_of_cpus" -gt 1 ] || skip "there is one CPU only"
}

needs_module() {
	loaded || skip "the module is not there"
}

alone() {
	beside
}

beside_perf_stat() {
	needs_perf
	beside perf_stat
}

beside_perf_record() {
	needs_perf
	beside perf_record perf_record_branches perf_record_task
}

beside_hotplug() {
	needs_cpus
	beside hotplug
}

beside_rmmod() {
	needs_module
	beside rmmod_insmod
}

beside_all() {
	set --
	! command -v perf >/dev/null || set -- perf_stat perf_record
	[ "$number_of_cpus" -eq 1 ] || {
		set -- "$@" hotplug
		cpus_come_and_go=yes
	}
	! loaded || set -- "$@" rmmod_insmod
	beside "$@"
}

# The module goes and comes back each time that the processes have just ended,
# whatever of theirs was due.
reloaded() {
	needs_module
	watch_log
	for turn in $(seq 5); do
		# shellcheck disable=SC2086
		must "$stress_program" --processes 16 --rounds "$rounds" --seed "$turn" $options </dev/null
		must rmmod "$NAME"
		must insmod "$MODULE"
	done
	quiet
	must pmu_tool count
}

number_of_cpus=$(find "$cpus" -maxdepth 1 -name 'cpu[0-9]*' | wc -l)
# An emulator's handler takes long; the kernel is not to lower the rate for it.
echo 100 >/proc/sys/kernel/perf_cpu_time_max_percent

[ $# -gt 0 ] || set -- alone beside_perf_stat beside_perf_record beside_hotplug beside_rmmod \
	beside_all reloaded
run_tests "$@"

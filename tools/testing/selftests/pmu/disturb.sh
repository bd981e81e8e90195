# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# What disturbs processes that use the PMU, for tests that source it after driver.sh: perf stat
# and perf record of all CPUs, CPUs that go away and come back, attempts to remove and insert the
# module.

# Called by those that source this.
# shellcheck disable=SC2154

cpus=/sys/devices/system/cpu cpus_come_and_go=no
# How often each disturbance takes place at least.
least_times=1
# What perf counts: `instructions` where an emulator without an instruction clock does not survive
# that cycles overflow.
counted=cycles pair=r20002,r1001e
number_of_cpus=$(find "$cpus" -maxdepth 1 -name 'cpu[0-9]*' | wc -l)

# What disturbs: each function disturbs once. A status other than 0 says that it
# went wrong itself, but for GONE: then it has not disturbed.
GONE=75

# perf fails if a CPU goes away between its look at them and its open: with the kernel's error, or,
# as it then takes the clock in place of cycles, because that has no branches. Nothing else may
# fail it.
of_all_cpus() {
	said=$("$@" 2>&1) && return
	echo "$said"
	case $cpus_come_and_go:$said in
	yes:*'No such device'* | yes:*"cpu-clock"*"doesn't support branch stack sampling"*) return "$GONE" ;;
	esac
	return 1
}

perf_stat() {
	of_all_cpus perf stat -a -x , -e "$counted,instructions" -e "{$pair}" \
		-o "$work/stat" -- sleep 0.01
}

perf_record() {
	of_all_cpus perf record -q -a -e "$counted" -c 1000003 -o "$work/data" -- sleep 0.01
}

# Branch stacks, from POWER10 on with branches in them.
perf_record_branches() {
	of_all_cpus perf record -q -a -j any,u -e "$counted:u" -c 1000003 -o "$work/data.branches" \
		-- sleep 0.01
}

perf_record_task() {
	perf record -q -e instructions -c 100003 -o "$work/data.task" -- pmu_tool work 3000000
}

# All go away but one, which is another one each time; then all come back, and stay so long that
# perf finds them all there, too.
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
	sleep 0.05
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
	gone=0
	while [ -e "$work/disturb" ]; do
		"$1" >"$work/said.$1" 2>&1
		status=$?
		case $status in
		0) times=$((times + 1)) ;;
		"$GONE") gone=$((gone + 1)) ;;
		*)
			echo "$1: status $status: $(cat "$work/said.$1")" >>"$work/wrong"
			break
			;;
		esac
	done
	[ "$gone" -eq 0 ] || echo "$1, CPU gone: $gone"
	echo "$1 $times" >>"$work/times"
}

# beside "FUNCTION..." PROGRAM...: runs the program with these disturbances. It prints "ready" and
# "total", and ends when its stdin does. Fails if it does, and if a disturbance went wrong. They are
# in each other's way: as long as one of them has disturbed fewer than $least_times, all is run again,
# thirty times at most.
beside() {
	functions=$1
	shift
	: >"$work/wrong"
	: >"$work/times_of_all"
	watch_log
	for turn in $(seq 30); do
		beside_once "$@"
		idle=
		for function in $functions; do
			awk -v name="$function" -v least="$least_times" '
				$1 == name { n += $2 }
				END { exit(n < least) }
			' "$work/times_of_all" || idle="$idle $function"
		done
		[ -n "$idle" ] || return 0
	done
	fail "in $turn turns fewer than $least_times of:$idle"
}

beside_once() {
	: >"$work/disturb"
	: >"$work/result"
	: >"$work/times"
	rm -f "$work/stdin"
	mkfifo "$work/stdin"
	"$@" <"$work/stdin" >"$work/result" 2>&1 &
	stress=$!
	# It holds its events until this is closed, so the module cannot go.
	exec 9>"$work/stdin"
	until grep -q '^ready' "$work/result"; do
		kill -0 "$stress" 2>/dev/null || break
		sleep 0.01
	done
	disturbers=
	for function in $functions; do
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
	tee -a "$work/times_of_all" <"$work/times"
	[ "$status" -ne "$SKIP" ] || skip "no EBB on this machine"
	[ "$status" -eq 0 ] || fail "$1 gave status $status"
	[ ! -s "$work/wrong" ] || fail "$(cat "$work/wrong")"
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

# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# Disturbances of processes that use the PMU: perf stat and perf record of all CPUs, CPUs that go
# offline and online, and attempts to remove and insert the module. Tests source this after
# driver.sh.

# The tests that source this file use these names.
# shellcheck disable=SC2154

cpus=/sys/devices/system/cpu cpus_come_and_go=no
# The least number of times that each disturbance must take place.
least_times=1
# The event that perf counts. It is `instructions` on an emulator without an instruction clock,
# which does not survive an overflow of cycles.
counted=cycles pair=r20002,r1001e
number_of_cpus=$(find "$cpus" -maxdepth 1 -name 'cpu[0-9]*' | wc -l)

# Each of these functions disturbs once. Status GONE means that it did not disturb because a CPU
# went offline, any other status but 0 that it failed.
GONE=75

# perf fails if a CPU goes offline after perf has listed the CPUs and before it opens events on
# them: with the kernel's error, or because it then replaces cycles by the clock, which has no
# branches. No other failure is accepted.
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

# Branch stacks, which hold branches from POWER10 on.
perf_record_branches() {
	of_all_cpus perf record -q -a -j any,u -e "$counted:u" -c 1000003 -o "$work/data.branches" \
		-- sleep 0.01
}

perf_record_task() {
	perf record -q -e instructions -c 100003 -o "$work/data.task" -- pmu_tool work 3000000
}

# Takes all CPUs offline except one, which changes from call to call. Then brings all back, for long
# enough that perf sometimes finds all of them online.
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

# refused ERROR COMMAND...: checks that the command of pmu_tool ends with this error.
refused() {
	error=$1
	shift
	answer=$(pmu_tool "$@" 2>&1)
	[ "$answer" = "$error" ] || {
		echo "$1: $answer, not $error"
		return 1
	}
}

# With events open, the kernel refuses both, and the module remains as it is. The error for a module
# in use is EAGAIN (some programs print "Module is in use").
rmmod_insmod() {
	refused EAGAIN remove "$NAME" && refused EEXIST insert "$MODULE" && loaded
}

# disturb FUNCTION: repeats the function until $work/disturb is removed, and adds the number of
# times to $work/times.
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

# beside "FUNCTION..." PROGRAM...: runs the program with these disturbances. The program prints
# "ready" and "total", and ends when its stdin does. Fails if the program fails or a disturbance
# goes wrong. The disturbances slow each other down. So everything is repeated, up to thirty times,
# until each one has taken place $least_times times.
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
	# The program holds its events until this descriptor is closed, so the module cannot be
	# removed.
	exec 9>"$work/stdin"
	until grep -q '^ready' "$work/result"; do
		kill -0 "$stress" 2>/dev/null || break
		sleep 0.01
	done
	disturbers=
	for function in $functions; do
		# The disturbance needs priority over the program's processes, which would end
		# before its first turn.
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
	loaded || skip "the module is not inserted"
}

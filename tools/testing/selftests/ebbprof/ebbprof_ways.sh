#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# ebbprof does not change what a program sees: its descriptors, threads, memory and time are as
# without ebbprof.
#
# Needs shared libraries and the perf tool in the guest (`scripts/vm run --libs --perf`).

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/ebbprof/ebbprof_record.sh
. "$(dirname "$0")/ebbprof_record.sh"

object=$programs/libebbprof_work.so

# alike WAY [PROGRAM [OPTION]]: checks that ebbprof_ways, or PROGRAM, prints the same with ebbprof
# as without, and ends well.
alike() {
	must "${2-ebbprof_ways}" "$1" "$object" >"$work/without"
	status=0
	ebbprof record -c "$PERIOD" -o "$work/data" ${3+"$3"} "${2-ebbprof_ways}" "$1" "$object" >"$work/with" 2>"$work/said" ||
		status=$?
	cat "$work/said"
	[ "$status" -eq 0 ] || fail "status $status"
	must diff "$work/without" "$work/with"
}

# Files that replace the descriptor of an event stay open, and open() returns the numbers that the
# program expects.
files_stay_open() {
	alike descriptors
}

child_has_no_events_of_threads() {
	alike inherit
}

cancelled_threads_begin() {
	alike cancel
}

# samples_of NAME: prints the number of samples of threads of this name.
samples_of() {
	awk -v name="$1" '$6 == name { n += $5 } END { print n + 0 }' "$work/report"
}

# A pass of half() is 5000 instructions. ebbprof notices a new name within a tenth of a second, most
# of which the thread sleeps.
names_of_threads_are_theirs() {
	alike names
	must ebbprof report --by thread "$work/data" -o "$work/report"
	cat "$work/report"
	for name in 'named 400' 'late 400' 'last 600'; do
		wanted=$((${name#* } * 5000 / PERIOD))
		found=$(samples_of "${name% *}")
		[ "$found" -ge $((wanted * 97 / 100)) ] && [ "$found" -le $((wanted * 115 / 100)) ] ||
			fail "$name: $found samples, not $wanted"
	done
	must perf script -i "$work/data" --show-task-events -F comm,tid,time >"$work/script"
	must grep -q 'PERF_RECORD_COMM: named' "$work/script"
}

# After its ebbprof was killed, a program runs as fast as without it, although its samples are not
# read.
program_outlives_ebbprof() {
	ebbprof record -c "$PERIOD" -o "$work/data" ebbprof_ways unload_later "$object" "$work/go" 2>"$work/said" &
	recorder=$!
	runs ebbprof_ways 0.1
	sleep 0.5
	kill -KILL "$recorder"
	wait "$recorder" 2>/dev/null
	touch "$work/go"
	# Opening and closing 30 objects takes some hundredths of a second.
	sleep 1
	[ ! -e "/proc/$program/fd/0" ] || {
		kill "$program"
		fail "it still waits for ebbprof to read its samples"
	}
}

# A program that closes all unknown descriptors still has its samples.
closed_event_goes_on() {
	alike shut
	accounted 200 1.3
	! grep 'before they ended' "$work/said" || fail "a closed event is reported as a loss"
}

# One of two threads has samples of half of its work. The rest is not reported as lost, which only
# counts samples that found no room.
ceased_samples_are_told() {
	alike cease
	must grep -q ' 0 lost' "$work/said"
	must grep -q '^ebbprof: 1 threads had no samples for 0.0[0-9] s before they ended' "$work/said"
	accounted 200 1.3
	must ebbprof report "$work/data" -o "$work/report"
	must grep -q '^1 threads lack their last samples$' "$work/report"
	must perf report -i "$work/data" --stats >"$work/stats"
	must grep -q 'THROTTLE events: *1 ' "$work/stats"
}

# A back chain is followed upwards and within the stack only. None of these leads to another frame,
# so each sample has one caller, the function's own in LR. A few samples may come while the chain is
# still the true one: during a few of the 200000 instructions of each of the ten calls.
false_back_chains_are_not_followed() {
	alike frames ebbprof_ways -g
	must ebbprof collapsed "$work/data" -o "$work/collapsed"
	grep astray "$work/collapsed"
	awk '/astray/ && !/^ebbprof_ways;with_frames;astray / { others += $NF } END { exit(others > 3) }' "$work/collapsed" ||
		fail "several stacks"
	found=$(sed -n 's/^ebbprof_ways;with_frames;astray \([0-9]*\)$/\1/p' "$work/collapsed")
	# Ten times 20000 rounds of ten instructions.
	wanted=$((2000000 / PERIOD))
	[ "${found:-0}" -ge $((wanted * 97 / 100)) ] && [ "$found" -le $((wanted * 110 / 100)) ] ||
		fail "$found samples, not $wanted"
}

locked_memory_is_the_programs() {
	alike lock
	! grep 'before they ended' "$work/said" || fail "losses are reported although there are none"
}

# Under ebbprof, little more memory counts for the limits of a program.
limits_of_memory_are_the_programs() {
	alike limited
	accounted 100 1.3
	# shellcheck disable=SC3045 # the guest's shell has this option
	(ulimit -l 65536 && as_nobody ebbprof record -o "$work/nobodys" ebbprof_ways lock) \
		>"$work/with" 2>"$work/said" || fail "status $?: $(cat "$work/said")"
	cat "$work/said" "$work/with"
	must grep -q 'below 100 MB' "$work/with"
	! grep 'have no samples' "$work/said" || fail "threads without samples"
}

# preloaded MEMORY: runs a program alone with this memory, and sets taken to the number of slots
# that it takes.
preloaded() {
	EBBPROF=$1 LD_PRELOAD=$programs/libebbprof.so must ebbprof_ways cancel >"$work/with"
	must grep -q '^200 began' "$work/with"
	taken=$(od -An -tu4 -j 212 -N 4 "$1" | tr -d ' ')
}

# Memory that is not from ebbprof is not used: the program runs without samples.
foreign_memory_is_refused() {
	# One file has a head only, the other one a head with impossibly large rings.
	printf 'ebbprof3\0\0\0\0\0\0\0\0\0\20\0\0\0\0\0\0' >"$work/head"
	printf 'ebbprof3\0\0\0\0\0\0\0\0\377\377\377\377\377\377\377\377' >"$work/huge"
	for memory in head huge; do
		truncate -s 65536 "$work/$memory"
		preloaded "$work/$memory"
		[ "$taken" -eq 0 ] || fail "$taken threads have taken slots of $memory"
	done
}

# If the recorder and the library have different versions, neither uses the other's memory, and the
# recorder can report it.
other_versions_are_told() {
	fresh_memory "$work/memory"
	printf ebbprof4 | dd of="$work/memory" conv=notrunc 2>/dev/null
	preloaded "$work/memory"
	[ "$taken" -eq 0 ] || fail "$taken threads have taken slots of another version's memory"
	[ "$(od -An -tu8 -j 8 -N 8 "$work/memory" | tr -d ' ')" -eq 1 ] || fail "the memory does not record the other version"
	: >"$work/answer"
	ebbprof collect $$ -- "$work/none" 3<>"$work/answer" 4<>"$work/memory"
	[ "$(od -An -tu1 "$work/answer" | tr -d ' ')" = 371 ] || fail "not the answer that the library expects"
	[ ! -e "$work/none" ] || fail "it created a file"
}

sound_memory_is_taken() {
	fresh_memory "$work/memory"
	preloaded "$work/memory"
	[ "$taken" -gt 0 ] || fail "no thread takes a slot of valid memory"
}

# In a PID namespace of its own, a process has other IDs. It takes no slot, and is reported. The
# guest's kernel has no such namespaces, so files represent them.
other_namespaces_are_told() {
	mount -t tmpfs none /proc
	trap 'umount /proc' EXIT
	mkdir -p /proc/self/ns
	: >/proc/self/ns/pid
	own=$(stat -c %i /proc/self/ns/pid)
	for namespace in $((own + 1)) "$own"; do
		fresh_memory "$work/memory"
		# shellcheck disable=SC2059 # an octal escape
		printf "\\$(printf %03o "$namespace")" | dd of="$work/memory" bs=1 seek=72 conv=notrunc 2>/dev/null
		preloaded "$work/memory"
		told=$(od -An -tu4 -j 224 -N 4 "$work/memory" | tr -d ' ')
		echo "namespace $namespace, own $own: $taken slots taken, $told processes reported"
		[ "$namespace" -eq "$own" ] || [ "$taken $told" = '0 1' ] || fail "one of another namespace takes part"
		[ "$namespace" -ne "$own" ] || { [ "$taken" -gt 0 ] && [ "$told" -eq 0 ]; } || fail "one of the same does not"
	done
}

# cut FILE: checks that the file has the samples that ebbprof wrote before there was no room, and
# that perf can read them.
cut() {
	samples=$(sed -n 's/.*not all of its samples were written, the file has \([0-9]*\)$/\1/p' "$work/said")
	[ "${samples:-0}" -gt 1000 ] || fail "ebbprof reports no samples"
	must ebbprof report "$1" -o "$work/report"
	must grep -q "^$samples samples" "$work/report"
	must perf script -i "$1" -F ip >"$work/script"
	[ "$(grep -c . "$work/script")" -eq "$samples" ] || fail "perf finds another number"
}

# If there is no room for the file, the program runs to its end, and ebbprof ends after it.
program_outlives_the_file() {
	mkdir "$work/small"
	mount -t tmpfs -o size=256k none "$work/small"
	status=0
	ebbprof record -c 101 -o "$work/small/data" ebbprof_ways names >"$work/with" 2>"$work/said" || status=$?
	cp "$work/small/data" "$work/data"
	umount "$work/small"
	cat "$work/said"
	[ "$status" -eq 125 ] || fail "status $status"
	must grep -q 'small/data: No space left.*the program continues' "$work/said"
	must grep -q '^all have worked' "$work/with"
	cut "$work/data"
}

# The same holds if the file reaches the file size limit, which raises a signal. The limit does not
# apply to the shared memory.
program_outlives_the_limit_of_files() {
	status=0
	# The unit of 2048 is 512 bytes, so this is 1 MiB.
	(ulimit -f 2048 && exec ebbprof record -c 101 -o "$work/data" ebbprof_ways names) >"$work/with" 2>"$work/said" || status=$?
	cat "$work/said"
	[ "$status" -eq 125 ] || fail "status $status"
	must grep -q '/data: File too large.*the program continues' "$work/said"
	must grep -q '^all have worked' "$work/with"
	cut "$work/data"
	# A user who may not raise the limit gets an error before the program runs.
	status=0
	su nobody -s /bin/sh -c "ulimit -f 2048; ebbprof record -o $work/none ebbprof_ways names" >"$work/said" 2>&1 || status=$?
	cat "$work/said"
	[ "$status" -eq 125 ] || fail "status $status"
	must grep -q 'exceeds the file size limit (ulimit -f)' "$work/said"
}

# The program's file size limit has the same effect as without ebbprof.
limit_of_files_is_the_programs() {
	(ulimit -f 2048 && alike limit)
}

nobody_hears_ebbprof() {
	status=0
	ebbprof record -c "$PERIOD" -o "$work/data" ebbprof_ways names >"$work/with" 2>/dev/full || status=$?
	[ "$status" -eq 0 ] || fail "status $status"
	status=0
	ebbprof report "$work/none" 2>/dev/full || status=$?
	[ "$status" -eq 125 ] || fail "status $status"
	status=0
	ebbprof check >/dev/full 2>"$work/said" || status=$?
	cat "$work/said"
	[ "$status" -eq 125 ] || fail "status $status"
}

# errno is 0 in main, and a cancelled thread can end the program.
begin_and_end_are_the_programs() {
	alike errno
	alike leave
}

# as_nobody COMMAND...: runs the command as user nobody. Its words must not contain blanks.
as_nobody() {
	chmod 777 "$work"
	rm -f "$work/nobodys"
	su nobody -s /bin/sh -c "PATH=$PATH exec $*"
}

untraced_processes_are_told() {
	as_nobody ebbprof record -o "$work/nobodys" ebbprof_ways untraced 2>"$work/said" || fail "status $?"
	cat "$work/said"
	must grep -q '^ebbprof: cannot check whether 1 threads lost the PMU' "$work/said"
	# Other processes can be checked.
	as_nobody ebbprof record -o "$work/nobodys" ebbprof_ways names >"$work/with" 2>"$work/said" || fail "status $?"
	! grep 'cannot check' "$work/said" || fail "a process that can be checked is reported"
}

signals_are_the_programs() {
	alike signals ebbprof_signals
}

# A thread has EBBs off in functions of the C library that block all signals. It has them on again
# after these functions, however they end, and in the handlers of signals that it sends to itself.
blocking_functions_end() {
	for way in jump itself nest; do
		alike "$way" ebbprof_signals
		cat "$work/with"
		accounted 100 1.3
	done
}

# A jump out of a sample stops sampling only until the next signal. In QEMU every second jump is out
# of a sample, because most of the time passes in samples.
jumps_end_no_samples() {
	# On a debug kernel in QEMU, samples take most of the time. So most jumps are out of a
	# sample, and there are no samples until the next signal.
	least=0.2
	! is_debug_kernel || least=0.02
	alike jumps_often ebbprof_signals
	passes=$(sed -n 's/^passes: //p' "$work/said")
	said_samples | awk -v wanted="$((passes * 5000 / PERIOD))" -v least="$least" '
		{ all = $1 + $2 }
		END { print all, "samples of", wanted; exit(!(all > wanted * least && all < wanted * 1.2)) }
	' || fail "samples are missing, or too many"
}

command -v perf >/dev/null || skip_all "there is no perf tool"
[ -e /lib64/ld64.so.2 ] || skip_all "there are no shared libraries"
run_tests files_stay_open child_has_no_events_of_threads cancelled_threads_begin \
	names_of_threads_are_theirs program_outlives_ebbprof closed_event_goes_on ceased_samples_are_told \
	false_back_chains_are_not_followed locked_memory_is_the_programs limits_of_memory_are_the_programs \
	foreign_memory_is_refused \
	other_versions_are_told other_namespaces_are_told sound_memory_is_taken program_outlives_the_file \
	program_outlives_the_limit_of_files limit_of_files_is_the_programs nobody_hears_ebbprof \
	begin_and_end_are_the_programs untraced_processes_are_told signals_are_the_programs blocking_functions_end \
	jumps_end_no_samples

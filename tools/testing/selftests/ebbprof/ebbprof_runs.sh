#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Programs run under ebbprof as they would alone. Whatever they do to their files, stacks and
# memory, the recording is complete.
#
# Needs shared libraries and the perf tool in the guest (`scripts/vm run --libs --perf`).

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/ebbprof/ebbprof_record.sh
. "$(dirname "$0")/ebbprof_record.sh"

# The program gets its name and its ignored signals from the process that starts ebbprof.
begin_is_the_programs() {
	# The numbers of SIGPIPE and SIGCHLD.
	for ignored in '' 13 17 '13 17'; do
		# shellcheck disable=SC2086 # words
		must ebbprof_runs ignores $ignored ebbprof_runs begins >"$work/without"
		# shellcheck disable=SC2086 # words
		must ebbprof_runs ignores $ignored ebbprof record -o "$work/data" ebbprof_runs begins \
			>"$work/with" 2>"$work/said"
		cat "$work/said" "$work/with"
		must diff "$work/without" "$work/with"
	done
}

# ebbprof does not need SIGCHLD to notice that its child ends.
ignored_sigchld_loses_nothing() {
	status=0
	ebbprof_runs ignores 17 ebbprof record -c "$PERIOD" -o "$work/data" ebbprof_work leave 1000 7 2>"$work/said" ||
		status=$?
	cat "$work/said"
	[ "$status" -eq 7 ] || fail "status $status"
	accounted 1000
	shares
}

# ebbprof passes signals that it gets on to the program.
signals_are_passed_on() {
	for number in 2 3 15 1; do
		ebbprof record -c "$PERIOD" -o "$work/data" ebbprof_runs interrupted "$number" >"$work/with" 2>"$work/said" &
		recorder=$!
		runs ebbprof_runs 0.05
		sleep 0.2
		kill "-$number" "$recorder"
		tries=0
		while [ -e "/proc/$program/fd/0" ]; do
			tries=$((tries + 1))
			[ "$tries" -le 50 ] || {
				kill -KILL "$program"
				fail "signal $number is not passed on"
			}
			sleep 0.1
		done
		status=0
		wait "$recorder" || status=$?
		cat "$work/said" "$work/with"
		[ "$status" -eq 3 ] || fail "status $status"
		must grep -q '^1 signals$' "$work/with"
	done
}

# A new object is known from its first sample on. Otherwise LR would be taken for the caller of its
# functions, which is wrong after they have called others.
late_objects_have_their_callers() {
	cp "$programs/libebbprof_runs.so" "$work/first.so"
	cp "$programs/libebbprof_runs.so" "$work/second.so"
	PERIOD=20011
	record 0 -g ebbprof_runs loads "$work/first.so" "$work/second.so"
	must ebbprof collapsed "$work/data" -o "$work/collapsed"
	grep late "$work/collapsed"
	must grep -q ';main;loads;works_in;late ' "$work/collapsed"
	! grep 'late;late' "$work/collapsed" || fail "it calls itself"
	must ebbprof report --by object "$work/data" -o "$work/report"
	cat "$work/report"
	must grep -q ' second.so ' "$work/report"
}

# A thread can begin while the loader is busy, in an object whose constructor waits for the thread.
constructors_may_wait_for_threads() {
	cp "$programs/libebbprof_starts.so" "$work/first.so"
	cp "$programs/libebbprof_runs.so" "$work/second.so"
	status=0
	timeout -s KILL 60 ebbprof record -c "$PERIOD" -o "$work/data" ebbprof_runs loads "$work/first.so" "$work/second.so" \
		2>"$work/said" || status=$?
	cat "$work/said"
	[ "$status" -eq 0 ] || fail "status $status"
	must grep -q ' samples of 2 threads, ' "$work/said"
}

# The library finds the C library's rseq area in any program: a sequence that takes several periods
# is aborted, unless, in the emulator, the handler already runs when the kernel checks (ebb.md,
# QEMU).
sequences_are_aborted() {
	must ebbprof_sequences >"$work/without"
	record 0 ebbprof_sequences >"$work/with"
	cat "$work/without" "$work/with"
	committed='s/^\([0-9]*\) of 20 sequences .*/\1/p'
	without=$(sed -n "$committed" "$work/without")
	with=$(sed -n "$committed" "$work/with")
	[ "${without:-0}" -ge 15 ] || fail "aborted without samples"
	[ "${with:-20}" -le 5 ] || fail "samples did not abort the sequences"
}

# Objects that the last thread of a process loads have their samples, too, after the first thread
# has ended.
last_thread_has_its_objects() {
	cp "$programs/libebbprof_runs.so" "$work/last.so"
	record 0 -g ebbprof_runs orphans "$work/last.so"
	must ebbprof report "$work/data" -o "$work/report"
	cat "$work/report"
	least=90
	! is_debug_kernel || least=80
	awk -v least="$least" '$6 == "other" && $7 == "last.so" { share = $1 + 0 } END { exit(share < least) }' "$work/report" ||
		fail "other() does not have its samples"
}

# A process is recorded as long as it has a thread, even if ebbprof has not yet looked at any.
last_thread_has_its_program() {
	record 0 -g ebbprof_runs hands_over
	must ebbprof collapsed "$work/data" -o "$work/collapsed"
	grep outer "$work/collapsed"
	must grep -q ';works_unseen;outer;leaf ' "$work/collapsed"
	! grep 'outer;outer' "$work/collapsed" || fail "it calls itself"
}

# Samples in an object whose file was truncated do not end the recorder.
truncated_object_ends_nothing() {
	cp "$programs/libebbprof_runs.so" "$work/object.so"
	record 0 -g ebbprof_runs truncates "$work/object.so"
	must [ ! -s "$work/object.so" ]
	must ebbprof report "$work/data" -o "$work/report"
	cat "$work/report"
	awk -v wanted="$((400 * 5000 / PERIOD))" '$6 == "half" { n = $5 } END { exit(!(n >= wanted * 0.99)) }' "$work/report" ||
		fail "not the samples of the work after that"
}

# A program that is rebuilt during the recording has another build ID.
rebuilt_program_has_its_build_id() {
	cp "$programs/libebbprof_work.so" "$work/"
	record 0 -g ebbprof_runs rebuilds "$work/built" "$programs/ebbprof_work" "$programs/ebbprof_calls"
	must perf script -i "$work/data" --show-mmap-events -F comm >"$work/script"
	grep "$work/built" "$work/script"
	for built in ebbprof_work ebbprof_calls; do
		id=$(perf buildid-list -i "$programs/$built")
		grep "PERF_RECORD_MMAP2.*$work/built" "$work/script" | must grep -q "${id:?}"
	done
}

# Files whose names are not valid UTF-8 have their symbols.
paths_are_bytes() {
	folder=$work/$(printf 'caf\351')
	mkdir "$folder"
	cp "$programs/ebbprof_work" "$programs/libebbprof_work.so" "$folder/"
	record 0 "$folder/ebbprof_work" plain 500
	shares
}

# On a stack that is not the thread's own, the library does not follow frames: the callers are
# missing rather than wrong.
other_stacks_have_no_wrong_callers() {
	record 0 -g ebbprof_runs coroutines
	must ebbprof collapsed "$work/data" -o "$work/collapsed"
	grep outer "$work/collapsed"
	must grep -q 'ebbprof_runs;outer ' "$work/collapsed"
	must grep -q 'ebbprof_runs;outer;leaf ' "$work/collapsed"
	! grep 'outer;outer' "$work/collapsed" || fail "it calls itself"
}

# The stack of a handler ends where the handler returns to. The interrupted code has saved no
# address there.
handlers_have_no_wrong_callers() {
	record 0 -g ebbprof_runs handlers
	must ebbprof collapsed "$work/data" -o "$work/collapsed"
	grep -E "handle|raise" "$work/collapsed"
	must grep -q 'ebbprof_runs;[^;]*;handles;outer;leaf ' "$work/collapsed"
	must grep -q ';main;handlers;raises;' "$work/collapsed"
	! grep -E 'raises.*;(handles|__kernel_)' "$work/collapsed" || fail "a handler has callers"
}

# The slot of a thread that was killed before it was recorded is freed.
abandoned_slot_is_freed() {
	record 0 -m 4 ebbprof_runs abandons >"$work/with"
	cat "$work/with"
	must grep -q '^the slot is free$' "$work/with"
}

# If a dump finds no room, for the records or for the sections after them, the file is still
# complete at the end.
dump_without_room_spoils_nothing() {
	mkdir "$work/small"
	refused=0
	for passes in 400 $(seq 312 3 336); do
		mount -t tmpfs -o size=512k none "$work/small"
		# Leave 64 KiB free: a page of tmpfs, for records of 40 bytes each.
		head -c $((448 * 1024)) /dev/zero >"$work/small/filler"
		status=0
		ebbprof_full dump "$work/small/data" "$work/small/filler" "$passes" >"$work/with" || status=$?
		cp "$work/small/data" "$work/"
		umount "$work/small"
		cat "$work/with"
		[ "$status" -eq 0 ] || fail "status $status"
		! grep '^dump: -1, No space left' "$work/with" || refused=$((refused + 1))
		must ebbprof report "$work/data" -o "$work/report"
		awk -v wanted="$((2 * passes * 5000 / PERIOD))" '$6 == "half" { n = $5 } END { print n, wanted; exit(!(n >= wanted * 0.98)) }' \
			"$work/report" || fail "not all samples"
		must perf script -i "$work/data" -F ip >"$work/script"
	done
	echo "$refused dumps were refused"
	[ "$refused" -ge 3 ] || fail "not three"
}

# An exec ends the recording, even if a child has the socket.
exec_ends_the_recording() {
	ebbprof_full exec "$work/data" &
	program=$!
	tries=0
	# The program takes some hundredths of a second until then.
	while sleep 0.1; [ "$(cat "/proc/$program/comm")" != sleep ]; do
		tries=$((tries + 1))
		[ "$tries" -le 300 ] || fail "there was no exec"
	done
	tries=0
	while sleep 0.1; pidof ebbprof >/dev/null; do
		tries=$((tries + 1))
		[ "$tries" -le 50 ] || fail "the file is still being written"
	done
	[ -e "/proc/$program/fd/0" ] || fail "the program has ended"
	# shellcheck disable=SC2046 # a word for each
	kill "$program" $(pidof ebbprof_full)
	must ebbprof report "$work/data" -o "$work/report"
	must grep -q ' half  *ebbprof_full' "$work/report"
}

command -v perf >/dev/null || skip_all "there is no perf tool"
[ -e /lib64/ld64.so.2 ] || skip_all "there are no shared libraries"
run_tests begin_is_the_programs ignored_sigchld_loses_nothing signals_are_passed_on \
	late_objects_have_their_callers constructors_may_wait_for_threads sequences_are_aborted last_thread_has_its_objects \
	last_thread_has_its_program truncated_object_ends_nothing rebuilt_program_has_its_build_id paths_are_bytes \
	other_stacks_have_no_wrong_callers handlers_have_no_wrong_callers abandoned_slot_is_freed \
	dump_without_room_spoils_nothing exec_ends_the_recording

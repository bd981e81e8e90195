#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Programs that attack the recorder, or other recorded programs, through the shared memory. They can
# spoil samples, and nothing else.
#
# Needs shared libraries and the perf tool in the guest (`scripts/vm run --libs --perf`).

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/ebbprof/ebbprof_record.sh
. "$(dirname "$0")/ebbprof_record.sh"

# hostile WAY [ARGUMENT]...: records ebbprof_hostile with the option $callers, and checks that it
# ends well. The recorder is limited to a gigabyte of memory and a minute.
callers=
hostile() {
	status=0
	# shellcheck disable=SC3045 # the guest's shell has this option
	(ulimit -v 1000000 && exec timeout -s KILL 60 ebbprof record ${callers:+"$callers"} -c "$PERIOD" -m 64 -o "$work/data" ebbprof_hostile "$@") \
		>"$work/with" 2>"$work/said" || status=$?
	cat "$work/said" "$work/with"
	[ "$status" -eq 0 ] || fail "status $status"
}

# readable: checks that perf and ebbprof find the same number of samples in the file, and sets
# samples to it.
readable() {
	must ebbprof report "$work/data" -o "$work/report"
	samples=$(sed -n '1s/ samples.*//p' "$work/report")
	must perf script -i "$work/data" -F ip >"$work/script"
	[ "$(grep -c . "$work/script")" -eq "$samples" ] || fail "perf finds another number than $samples"
}

ring_that_wraps_is_left() {
	hostile wraps
	must grep -q '^ebbprof: 1 threads lack their last samples: their programs wrote' "$work/said"
	readable
	must grep -q '^1 threads lack their last samples$' "$work/report"
}

ring_that_goes_back_is_left() {
	hostile goes_back
	must grep -q '^ebbprof: 1 threads lack their last samples: their programs wrote' "$work/said"
	readable
	[ "$samples" -gt 1000 ] || fail "samples from before are missing"
}

any_contents_are_lived_with() {
	for seed in 1 2 3; do
		hostile scribbles "$seed"
		# No text of the program may look like a message of ebbprof on a terminal.
		! grep -v '^ebbprof: ' "$work/said" || fail "a line of the program's own"
		readable
	done
}

memory_keeps_its_size() {
	hostile truncates
	must grep -q '^truncate: Operation not permitted$' "$work/with"
	accounted 200
}

# names FILE: records a program that becomes user 65534 and then reports that this file is mapped.
names() {
	# shellcheck disable=SC2046 # two words
	hostile names "$1" $(stat -c '0:%D %i' "$1") "$1"
	must perf script -i "$work/data" --show-mmap-events -F comm >"$work/script"
	must grep "PERF_RECORD_MMAP2.*$1" "$work/script"
}

# A FIFO that another user reports is not opened, because that would unblock its writer.
fifo_is_not_opened() {
	chmod 711 "$work"
	mkdir -m 700 "$work/fifos"
	for fifo in "$work/fifos/fifo" "$work/fifo"; do
		mkfifo -m 600 "$fifo"
		{
			echo >"$fifo"
			echo opened >"$work/opened"
		} &
		writer=$!
		names "$fifo"
		must grep -q '^it opens it itself: Permission denied$' "$work/with"
		kill "$writer"
		[ ! -e "$work/opened" ] || fail "$fifo was opened"
	done
}

# A file that the program may not read is not read, though its path and inode are right. A file that
# all users may read is read.
private_file_is_not_read() {
	chmod 711 "$work"
	mkdir -m 700 "$work/private"
	mkdir -m 755 "$work/public"
	id=$(perf buildid-list -i "$programs/ebbprof_work")
	for folder in private public; do
		cp "$programs/ebbprof_work" "$work/$folder/program"
		chmod 755 "$work/$folder/program"
		names "$work/$folder/program"
		found=no
		! grep "PERF_RECORD_MMAP2.*/program" "$work/script" | grep -q "${id:?}" || found=yes
		echo "$folder: read: $found"
		[ "$folder $found" = 'private no' ] || [ "$folder $found" = 'public yes' ] || fail "$folder: read: $found"
	done
	# The mode allows only the owner to read the file.
	chmod 600 "$work/public/program"
	names "$work/public/program"
	! grep "PERF_RECORD_MMAP2.*/program" "$work/script" | grep "$id" || fail "root's file was read"
}

# A file that the process has really mapped is read, even if its path is private.
own_file_is_read() {
	mkdir -m 700 "$work/own"
	cp "$programs/ebbprof_work" "$programs/libebbprof_work.so" "$work/own/"
	record 0 "$work/own/ebbprof_work" plain 3000
	id=$(perf buildid-list -i "$programs/ebbprof_work")
	must perf script -i "$work/data" --show-mmap-events -F comm >"$work/script"
	grep 'PERF_RECORD_MMAP2.*own/ebbprof_work' "$work/script" | must grep -q "${id:?}"
}

# The event of a process that is not recorded stays disabled.
events_of_others_are_left() {
	mkfifo "$work/asked"
	ebbprof_hostile victim <"$work/asked" >"$work/victim" &
	victim=$!
	exec 8>"$work/asked"
	until [ "$(grep -c . "$work/victim")" -ge 2 ]; do
		sleep 0.1
	done
	# shellcheck disable=SC2046 # three words
	hostile claims $(head -n 1 "$work/victim")
	exec 8>&-
	must wait "$victim"
	cat "$work/victim"
	[ "$(tail -n +2 "$work/victim" | tr '\n' ' ')" = 'off off ' ] || fail "the event was enabled"
}

# attacked WAY: lets a child of another user attack a program of root, once without callers and once
# with them.
attacked() {
	for callers in '' -g; do
		hostile is_attacked "$1"
		must grep -q '^the attack has ended with 0, and 0 bytes were changed$' "$work/with"
		# With callers, perf prints several lines for each sample.
		[ "$callers" ] || readable
	done
}

# The attacker writes the position in the ring, and the size of the ring.
others_do_not_move_the_ring() {
	attacked array
}

# The attacker writes the bounds of the stack, and the largest number of callers.
others_do_not_move_the_stack() {
	attacked stack
}

# The attacker writes the head of the memory while threads of the program begin and end.
others_do_not_size_the_mappings() {
	attacked head
}

# ENOMEM, and the error of a kernel that does not support the request.
thread_without_memory_is_told() {
	hostile starves 12
	must grep -q '^the thread has ended' "$work/with"
	must grep -q '^ebbprof: 1 threads have no samples: the system had no memory for them$' "$work/said"
	hostile starves 22
	! grep 'have no samples' "$work/said" || fail "an older kernel is reported as lack of memory"
	accounted 200
}

# A program that records itself must seal the size of its memory, too.
unsealed_memory_is_refused() {
	fresh_memory "$work/memory"
	: >"$work/answer"
	ebbprof collect $$ -- "$work/none" 3<>"$work/answer" 4<>"$work/memory"
	[ "$(od -An -tu1 "$work/answer" | tr -d ' ')" = 371 ] || fail "not the answer that the library expects"
	[ ! -e "$work/none" ] || fail "it created a file"
}

command -v perf >/dev/null || skip_all "there is no perf tool"
[ -e /lib64/ld64.so.2 ] || skip_all "there are no shared libraries"
run_tests ring_that_wraps_is_left ring_that_goes_back_is_left any_contents_are_lived_with memory_keeps_its_size \
	fifo_is_not_opened private_file_is_not_read own_file_is_read events_of_others_are_left \
	others_do_not_move_the_ring others_do_not_move_the_stack others_do_not_size_the_mappings \
	thread_without_memory_is_told unsealed_memory_is_refused

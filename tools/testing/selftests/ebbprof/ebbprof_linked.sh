#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Programs that profile parts of themselves with libebbprof: in C, dynamic and static, and in Rust.
#
# Needs shared libraries and the perf tool in the guest (`scripts/vm run --libs --perf`).

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/ebbprof/ebbprof_record.sh
. "$(dirname "$0")/ebbprof_record.sh"

# With these passes, half() gets 1982 samples.
PASSES=400

# client WAY [STATUS]: runs the program and checks its exit status.
client() {
	rm -f "$work/data"
	status=0
	"$program" "$1" "$work/data" "$PASSES" >"$work/said" || status=$?
	cat "$work/said"
	[ "$status" -eq "${2-0}" ] || fail "$program $1: status $status"
}

# has TIMES: checks that the file has TIMES as many samples as PASSES give, and none of
# three_tenths(), and that perf finds the same number. QEMU also counts the PM interrupts, one of
# which comes with each alert of half(): 7 more instructions in the driver are 0.7 % more samples.
has() {
	must ebbprof report "$work/data" -o "$work/report"
	cat "$work/report"
	! grep three_tenths "$work/report" || fail "samples of code outside of the recorded parts"
	awk -v wanted="$(($1 * PASSES * 5000 / PERIOD))" -v less="$less" -v around="$around" '
		$6 == "half" { found = $5 }
		END { exit(!(found >= wanted * (1 - less) - 1 && found <= wanted * (1 + 2 * around) + 1)) }
	' "$work/report" || fail "not $1 times half()"
	must perf report -i "$work/data" --no-children -g none --stdio -F sample,sym >"$work/perf"
	[ "$(awk '$3 == "half" { print $1 }' "$work/perf")" = "$(awk '$6 == "half" { print $5 }' "$work/report")" ] ||
		fail "perf finds another number"
}

# each FUNCTION: calls the function with each client.
each() {
	for program in ebbprof_client ebbprof_client_static; do
		"$@"
	done
}

parts_() {
	client parts
	has 2
	must ebbprof collapsed "$work/data" -o "$work/collapsed"
	must grep -Eq ';main;parts;(do_half|work);half [0-9]+$' "$work/collapsed"
	must perf script -i "$work/data" --show-mmap-events -F comm,ip,sym >"$work/script"
	must grep -q "PERF_RECORD_MMAP2.*/$program" "$work/script"
}
parts_are_sampled() {
	each parts_
}

threads_() {
	client threads
	has 3
	must ebbprof report --by thread "$work/data" -o "$work/report"
	[ "$(grep -c "$(echo "$program" | cut -c 1-15)" "$work/report")" -ge 3 ] || fail "not three threads"
}
threads_are_sampled() {
	each threads_
}

others_() {
	client others
	has 2
}
another_thread_pauses_and_ends() {
	each others_
}

dumped_file_is_complete() {
	program=ebbprof_client
	mkfifo "$work/asked" "$work/told"
	"$program" dump "$work/data" "$PASSES" <"$work/asked" >"$work/told" &
	dumper=$!
	exec 8>"$work/asked" 7<"$work/told"
	read -r line <&7
	[ "$line" = dumped ] || {
		wait "$dumper"
		fail "no dump: $line: $?"
	}
	has 1
	# A service manager ends all processes of a service in this way. The program still has work
	# to do.
	# shellcheck disable=SC2046 # a word for each
	kill -TERM $(pidof ebbprof)
	echo >&8
	must wait "$dumper"
	exec 7<&- 8>&-
	has 3
}

many_() {
	client many
	has 1
}
recordings_follow_each_other() {
	each many_
}

child_is_sampled() {
	program=ebbprof_client client fork
	has 2
}

siblings_() {
	client siblings
	must ebbprof report "$work/data.1" -o "$work/report"
	must grep -q ' three_tenths ' "$work/report"
	mv "$work/data.0" "$work/data"
	has 1
}
children_record_apart() {
	each siblings_
}

# is_written: waits until ebbprof no longer writes the file of a program that has ended or closed
# its socket.
is_written() {
	tries=0
	while pidof ebbprof; do
		tries=$((tries + 1))
		[ "$tries" -le 100 ] || fail "ebbprof does not end"
		sleep 0.1
	done
}

# If the program does not stop the recording, the file is complete when the program exits. After a
# kill it is complete soon.
ends_are_noticed() {
	for program in ebbprof_client ebbprof_client_static; do
		client forgets
		has 1
		for way in 'killed 137' 'executes 0'; do
			# shellcheck disable=SC2086 # two words
			client $way
			is_written
			has 1
		done
	done
}

# A file name that begins with a dash is not an option.
file_has_any_name() {
	(cd "$work" && must ebbprof_client parts -data 1)
	must ebbprof report "$work/-data" -o "$work/report"
}

nobody_notices() {
	program=ebbprof_client client alone
	has 1
}

closes_() {
	client closes
	must grep -q '^dump: the program has closed the socket' "$work/said"
	has 1
	# The first file is complete soon after its socket was closed.
	is_written
	mv "$work/data.first" "$work/data"
	has 1
}
closed_files_are_the_programs() {
	each closes_
}

leave_() {
	client leave
	has 1
}
cancelled_thread_ends_it() {
	each leave_
}

blocked_() {
	client blocked
	must grep -q '^own action: 0$' "$work/said"
	must grep -q '^raised: 1$' "$work/said"
}
# This holds whatever the threads have done to SIGILL.
threads_outlive_the_recording() {
	PASSES=200
	program=ebbprof_threads blocked_
	PASSES=30
	program=ebbprof_threads_static blocked_
}

threads_go_on_after_pauses() {
	program=ebbprof_threads client paused
	must perf script -i "$work/data" -F tid,ip,sym >"$work/script"
	awk -v wanted="$((PASSES * 5000 / 10007))" -v less="$less" '
		$3 == "half" { found[$1]++ }
		END {
			for (tid in found) {
				print tid, found[tid], "of", wanted
				good += found[tid] >= wanted * (1 - less) - 1
			}
			exit(good != 8)
		}
	' "$work/script" || fail "not all of 8 threads have their samples"
}

child_is_not_paused() {
	program=ebbprof_threads client forks
	has 2
}

clones_() {
	client clones
	must grep -q '^start: .*not created by fork' "$work/said"
	has 1
}
clones_have_no_part_in_it() {
	PASSES=100
	for program in ebbprof_threads ebbprof_threads_static; do
		clones_
	done
}

refusals_have_reasons() {
	for program in ebbprof_client ebbprof_client_static; do
		client refusals
		must grep -q '^event: the PMU has no event of this name' "$work/said"
		must grep -q '^program: cannot run ebbprof' "$work/said"
		[ ! -e "$work/data" ] || fail "a refused call created a file"
		client twice
		has 1
	done
	# A program that is recorded cannot record itself, too.
	ebbprof record -o "$work/other" ebbprof_client twice "$work/data" 1 >"$work/said" 2>&1 || status=$?
	must grep -q 'start: .*ebbprof record already profiles the program' "$work/said"
}

# The user of a set-user-ID program chooses neither which ebbprof it executes nor, through the
# environment, memory that it writes to.
users_have_no_say_in_setuid_programs() {
	# A loader that ignores $ORIGIN finds the library here.
	cp "$programs/libebbprof.so.0" /usr/lib/
	mkdir "$work/bin"
	chmod 755 "$work" "$work/bin"
	fresh_memory "$work/memory"
	chmod 666 "$work/memory"
	head -c 65536 "$work/memory" >"$work/before"
	for program in ebbprof_client ebbprof_client_static; do
		cp "$programs/$program" "$work/bin/"
		chmod u+s "$work/bin/$program"
		must su nobody -s /bin/sh -c "EBBPROF=$work/memory $work/bin/$program secure $work/none 1" >"$work/said"
		must grep -q '^start: .*set-user-ID' "$work/said"
	done
	head -c 65536 "$work/memory" >"$work/after"
	must cmp "$work/before" "$work/after"
	# A program without more rights does use this memory.
	env "EBBPROF=$work/memory" ebbprof_client twice "$work/none" 1
	head -c 65536 "$work/memory" >"$work/after"
	! cmp "$work/before" "$work/after" || fail "the program does not use the memory"
	rm -f /usr/lib/libebbprof.so.0
}

rust_is_served() {
	must ebbprof_parts "$work/data"
	must ebbprof report "$work/data" -o "$work/report"
	cat "$work/report"
	must grep -q 'ebbprof_parts::wanted' "$work/report"
	! grep unwanted "$work/report" || fail "samples of code outside of the recorded parts"
	must ebbprof report --by thread "$work/data" -o "$work/report"
	[ "$(grep -c ebbprof_parts "$work/report")" -eq 2 ] || fail "not two threads"
	must perf report -i "$work/data" --no-children -g none --stdio -F sample,sym >"$work/perf"
	# perf may print the mangled name.
	must grep -Eq 'ebbprof_parts(::|6)wanted' "$work/perf"
}

example_of_the_page_works() {
	(cd "$work" && must ebbprof_example)
	must ebbprof report "$work/sum.data" -o "$work/report"
	must grep -q ' sum  *ebbprof_example' "$work/report"
}

command -v perf >/dev/null || skip_all "there is no perf tool"
[ -e /lib64/ld64.so.2 ] || skip_all "there are no shared libraries"
run_tests parts_are_sampled threads_are_sampled another_thread_pauses_and_ends dumped_file_is_complete \
	recordings_follow_each_other child_is_sampled children_record_apart ends_are_noticed file_has_any_name nobody_notices \
	closed_files_are_the_programs cancelled_thread_ends_it \
	threads_outlive_the_recording threads_go_on_after_pauses child_is_not_paused clones_have_no_part_in_it \
	refusals_have_reasons users_have_no_say_in_setuid_programs rust_is_served example_of_the_page_works

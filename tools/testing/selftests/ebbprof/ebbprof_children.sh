#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# A child that was created by clone(), _Fork() or vfork() does not affect its parent's samples,
# whatever it does.
#
# Needs shared libraries and the perf tool in the guest (`scripts/vm run --libs --perf`).

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/ebbprof/ebbprof_record.sh
. "$(dirname "$0")/ebbprof_record.sh"

PASSES=400

# child CALL ACTION THREADS: records the program and checks that it has this number of sampled
# threads.
child() {
	cp "$programs/libebbprof_runs.so" "$work/childs.so"
	record 0 ebbprof_children "$1" "$2" "$PASSES" "$work/childs.so" >"$work/with"
	cat "$work/with"
	must grep -q " samples of $3 threads, 0 lost" "$work/said"
	must ebbprof report "$work/data" -o "$work/report"
	cat "$work/report"
	# The parent must have as many samples after the end of its child as before.
	for function in before after; do
		awk -v name="$function" -v wanted="$((PASSES * 10000 / PERIOD))" -v less="$less" -v around="$around" '
			$6 == name { found = $5 }
			END { exit(!(found >= wanted * (1 - less) - 1 && found <= wanted * (1 + 2 * around) + 1)) }
		' "$work/report" || fail "$1, $2: not the samples of $function()"
	done
}

# alone CALL ACTION: checks that only the parent is sampled, with its own objects only.
alone() {
	child "$1" "$2" 1
	! grep in_child "$work/report" || fail "$1, $2: the child has samples"
	must perf script -i "$work/data" --show-mmap-events -F comm >"$work/script"
	! grep childs.so "$work/script" || fail "$1, $2: the parent has an object of its child"
}

# each ACTION: tests the action with both calls that give the child a copy of its parent's memory.
each() {
	for call in clone _Fork; do
		alone "$call" "$1"
	done
}

thread_of_a_child_ends() {
	each pthread_exit
}

child_exits() {
	each exit
}

child_closes_an_object() {
	each dlclose
}

child_makes_threads() {
	each threads
}

child_takes_sigill() {
	each sigill
}

child_is_refused() {
	each calls
}

# A child that this child creates by fork() is recorded like any other process.
child_forks() {
	for call in clone _Fork; do
		child "$call" fork 2
		must grep -q ' in_child ' "$work/report"
	done
}

sharing_child_is_refused() {
	alone vfork calls
	alone vfork _exit
}

command -v perf >/dev/null || skip_all "there is no perf tool"
[ -e /lib64/ld64.so.2 ] || skip_all "there are no shared libraries"
run_tests thread_of_a_child_ends child_exits child_closes_an_object child_makes_threads child_takes_sigill \
	child_is_refused child_forks sharing_child_is_refused

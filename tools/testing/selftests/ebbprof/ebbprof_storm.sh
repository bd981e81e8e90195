#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# ebbprof under stress: 64 threads fork, execute programs, are killed, open and close shared
# objects, and get signals on other stacks.
#
# Needs shared libraries and the perf tool in the guest (`scripts/vm run --libs --perf`).

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/ebbprof/ebbprof_record.sh
. "$(dirname "$0")/ebbprof_record.sh"

# Each function has as many samples, with the lost ones, as its instructions make, including
# functions in objects that are closed. QEMU also counts the kernel's work for a thread.
storm_is_accounted() {
	cp "$programs/libebbprof_work.so" "$work/first.so"
	cp "$programs/libebbprof_work.so" "$work/second.so"
	must ebbprof record "$@" -c "$PERIOD" -m 256 -o "$work/data" ebbprof_storm 2 "$work/first.so" "$work/second.so" \
		>"$work/counts" 2>"$work/said"
	cat "$work/said" "$work/counts"
	! grep 'have no samples' "$work/said" || fail "threads without samples"
	# There are 64 threads and their parent, 32 children, and the programs that some of these
	# execute.
	grep -q 'of 108 threads' "$work/said" || fail "not 108 threads"
	must ebbprof report -n 100 "$work/data" -o "$work/report"
	cat "$work/report"
	must perf report -i "$work/data" --no-children -g none --stdio -F sample,sym >"$work/perf"
	while read -r function instructions; do
		ours=$(awk -v name="$function" '$6 == name { n += $5 } END { print n + 0 }' "$work/report")
		perfs=$(awk -v name="$function" '$3 == name { n += $1 } END { print n + 0 }' "$work/perf")
		echo "$function $instructions $ours $perfs"
		[ "$ours" -eq "$perfs" ] || fail "$function: perf finds $perfs, not $ours"
		said_samples | awk -v ours="$ours" -v period="$PERIOD" -v wanted="$instructions" -v less="$less" '
			{
				share = ours * period / wanted
				print share, "of its instructions"
				exit(!((ours + $2) * period / wanted > 1 - 3 * less && share < 1.1))
			}
		' || fail "$function: not the samples of its instructions"
	done <"$work/counts"
	for object in first second; do
		must grep -q "fifth  *$object.so" "$work/report"
	done
}

with_callers() {
	storm_is_accounted -g
	must ebbprof collapsed "$work/data" -o "$work/collapsed"
	# The callers start at the thread's first function, also in closed objects.
	must grep -Eq ';in_thread;use_object;fifth ' "$work/collapsed"
	awk '/;fifth [0-9]*$/ { all += $NF; if (/;use_object;/) good += $NF } END { print good, "of", all; exit(!(good > all * 0.98)) }' \
		"$work/collapsed" || fail "fifth() has other callers"
}

command -v perf >/dev/null || skip_all "there is no perf tool"
[ -e /lib64/ld64.so.2 ] || skip_all "there are no shared libraries"
run_tests storm_is_accounted with_callers

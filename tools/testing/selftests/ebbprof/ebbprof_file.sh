#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The file that ebbprof writes, and the file that a killed recorder leaves. A test on the host
# checks what happens to an older file, a link or a device (`perfdata/output.rs`).
#
# Needs shared libraries and the perf tool in the guest (`scripts/vm run --libs --perf`).

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/ebbprof/ebbprof_record.sh
. "$(dirname "$0")/ebbprof_record.sh"

# A file is written by the recorder, or by a program that records itself.
file_is_its_users_alone() {
	umask 0
	record 0 ebbprof_work plain 100
	must ebbprof_client parts "$work/parts" 10
	for file in data parts; do
		[ "$(stat -c %a "$work/$file")" -eq 600 ] || fail "$file: mode $(stat -c %a "$work/$file")"
	done
	cp "$work/data" "$work/first"
	record 0 ebbprof_work plain 200
	must cmp "$work/first" "$work/data.old"
}

# perf and ebbprof can read the file of a killed recorder, from before the first sample on. Soon it
# has samples. The test limits the time to the first samples, and not their number.
killed_recorder_leaves_its_samples() {
	rm -f "$work/data"
	ebbprof record -c "$PERIOD" -o "$work/data" ebbprof_hostile endures 2>"$work/said" &
	recorder=$!
	runs ebbprof_hostile 0.1
	must ebbprof report "$work/data" -o "$work/report"
	tries=0 samples=0
	while [ "$samples" -eq 0 ]; do
		tries=$((tries + 1))
		[ "$tries" -le 30 ] || break
		sleep 0.1
		must ebbprof report "$work/data" -o "$work/report"
		samples=$(sed -n '1s/ samples.*//p' "$work/report")
	done
	kill -KILL "$recorder"
	wait "$recorder" 2>/dev/null
	kill -KILL "$program"
	echo "$samples samples after $tries looks"
	[ "$samples" -gt 0 ] || fail "no samples in three seconds"
	must ebbprof report "$work/data" -o "$work/report"
	cat "$work/report"
	must grep -q ' half  *ebbprof_hostile' "$work/report"
	must perf script -i "$work/data" -F ip,sym 2>"$work/complaints" >"$work/script"
	cat "$work/complaints"
	[ "$(grep -c . "$work/script")" -eq "$(sed -n '1s/ samples.*//p' "$work/report")" ] || fail "perf finds another number"
	must perf report -i "$work/data" --stdio -F sample,sym >"$work/perf"
	must grep -q ' half$' "$work/perf"
}

command -v perf >/dev/null || skip_all "there is no perf tool"
[ -e /lib64/ld64.so.2 ] || skip_all "there are no shared libraries"
run_tests file_is_its_users_alone killed_recorder_leaves_its_samples

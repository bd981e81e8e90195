#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The file that ebbprof writes: whose it is, what becomes of an older one, and what a recorder leaves that
# is killed.
#
# Needs shared libraries and the perf tool in the guest (`scripts/vm run --libs --perf`).

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/ebbprof/ebbprof_record.sh
. "$(dirname "$0")/ebbprof_record.sh"

mode() {
	stat -c %a "$1"
}

file_is_its_users_alone() {
	umask 0
	record 0 ebbprof_work plain 100
	[ "$(mode "$work/data")" -eq 600 ] || fail "mode $(mode "$work/data")"
	# Of one that is there, too.
	: >"$work/data"
	chmod 644 "$work/data"
	record 0 ebbprof_work plain 100
	[ "$(mode "$work/data")" -eq 600 ] || fail "mode $(mode "$work/data") in place of an empty file"
	must ebbprof_client parts "$work/parts" 10
	[ "$(mode "$work/parts")" -eq 600 ] || fail "mode $(mode "$work/parts") of a part"
}

older_file_is_kept() {
	record 0 ebbprof_work plain 100
	cp "$work/data" "$work/first"
	record 0 ebbprof_work plain 200
	must cmp "$work/first" "$work/data.old"
	cp "$work/data" "$work/second"
	must ebbprof_client parts "$work/data" 10
	must cmp "$work/second" "$work/data.old"
}

links_are_not_followed() {
	rm -f "$work/data"
	echo precious >"$work/target"
	ln -s target "$work/data"
	status=0
	ebbprof record -o "$work/data" ebbprof_work plain 1 2>"$work/said" || status=$?
	cat "$work/said"
	[ "$status" -eq 125 ] || fail "status $status"
	must grep -q '/data: it is a symbolic link' "$work/said"
	[ "$(cat "$work/target")" = precious ] || fail "the target was written"
	rm "$work/target"
	! ebbprof record -o "$work/data" ebbprof_work plain 1 2>"$work/said" || fail "a link to nothing is followed"
	[ ! -e "$work/target" ] || fail "there is a target"
}

devices_take_samples() {
	must ebbprof record -o /dev/null ebbprof_work plain 100
	[ -c /dev/null ] || fail "/dev/null is no device any more"
}

# A recorder that is killed has left what perf and ebbprof read: before there is any sample, and soon after
# there are some. That is how long the test waits, not how many there are.
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
run_tests file_is_its_users_alone older_file_is_kept links_are_not_followed devices_take_samples \
	killed_recorder_leaves_its_samples

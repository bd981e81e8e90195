#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Events of the perf tool under the built-in driver and under the module, in one boot; EBB events,
# as far as the tool's syntax allows them; and perf during insmod.
#
# Needs the perf tool in the guest (`scripts/vm run --perf`).

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"

# Prints the names of hardware events in "perf list", one per line.
names() {
	perf list --raw-dump hw cache pmu | tr -s ' ' '\n' | sed '/^$/d' | sort -u
}

# stat_of FILE COMMAND...: counts the events named in FILE, which take turns on the counters. Prints
# "EVENT VALUE", one per line.
stat_of() {
	set -- "$(sed 's/^/-e /' "$1")" "$@"
	events=$1
	shift 2
	# The variable holds several words, one option or event in each.
	# shellcheck disable=SC2086
	must perf stat -x , -o "$work/stat" $events "$@"
	awk -F , 'NF > 2 { print $3, $1 }' "$work/stat"
}

# observe DRIVER: writes the names and outcomes that the tests compare to $work/DRIVER.
observe() {
	mkdir "$work/$1"
	names >"$work/$1/all"
	stat_of "$work/$1/all" true >"$work/$1/opened"
}

drivers_are_observed() {
	under_both observe
	wc -l "$work"/*/all
}

# Checks that each of perf's names is supported by both drivers or by neither.
names_are_supported_alike() {
	for driver in in-tree rust; do
		awk '{ print $1, $2 == "<not" && $3 == "supported>" ? "refused" : "opened" }' \
			"$work/$driver/opened" >"$work/$driver/support"
	done
	cut -d ' ' -f 2 "$work/rust/support" | sort | uniq -c
	[ "$(wc -l <"$work/rust/support")" -gt 300 ] || fail "too few names"
	diff "$work/in-tree/support" "$work/rust/support" ||
		fail "- is the built-in driver's, + the module's"
	must grep -qx cpu/L1-dcache-loads/ "$work/rust/all"
}

# Makes the module print the reason of each refusal.
tell_reasons() {
	load
	echo "module $NAME +p" >/sys/kernel/debug/dynamic_debug/control
}

# refused CODE REASON OPTION...: checks that all opens of this perf stat are refused for this
# reason.
refused() {
	line="event $1 refused (-22): $2"
	shift 2
	watch_log
	must perf stat -x , -o "$work/stat" "$@" true
	printed | sed -n 's/.*ebb_pmu: //p' | sort -u >"$work/reasons"
	echo "perf stat $*"
	cat "$work/reasons"
	[ "$(cat "$work/reasons")" = "$line" ] || fail "perf stat $*: not '$line'"
	must grep -q '^<not supported>,' "$work/stat"
}

# perf stat sets attributes that break the rules for EBB events. Each step here meets one more rule.
rules_of_ebb_apply() {
	tell_reasons
	event=cpu/event=0x1001e,ebb=1/ code=0x800000000001001e
	refused "$code" 'the leader of an EBB group must be pinned' -e "$event"
	refused "$code" 'the leader of an EBB group must be exclusive' -e "${event}D"
	refused "$code" 'an EBB event cannot be inherited' -e "${event}De"
	refused "$code" 'an EBB event takes no sample type' -i -e "${event}De"
	refused "$code" 'an EBB event must be attached to a task' -a -e "${event}De"
	quiet
}

terms_are_bits() {
	tell_reasons
	reason='the leader of an EBB group must be pinned'
	refused 0x800000000001001e "$reason" -e cpu/event=0x1001e,ebb/
	refused 0xf00000000001001e "$reason" -e cpu/pmcxsel=0x1e,pmc=1,ebb=1,bhrb=1,ifm=3/
	reason='only an EBB event may ask for the BHRB in its code'
	refused 0x400000000001001e "$reason" -e cpu/event=0x1001e,bhrb=1/
	reason='a BHRB filter is set but not the BHRB bit'
	refused 0x100000000001001e "$reason" -e cpu/event=0x1001e,ifm=1/
}

# opens EVENT [REASON]: opens EVENT for another process, without attributes that EBB events refuse.
# With REASON, checks that it is refused for this reason.
opens() {
	watch_log
	must perf stat record -o - -i -p "$target" -e "$1" -- sleep 0.01 >"$work/data"
	perf stat report -i - <"$work/data" >"$work/report" 2>&1
	printed | sed -n 's/.*refused (-22): //p' | sort -u >"$work/reasons"
	echo "$1: $(cat "$work/reasons")"
	grep 0x "$work/report"
	[ "$(cat "$work/reasons")" = "${2-}" ] || fail "$1: not '${2-}'"
	# The process sleeps, so an open event has not counted.
	expected='not counted'
	[ -z "${2-}" ] || expected='not supported'
	grep -q "$expected" "$work/report" || fail "$1: $(grep 0x "$work/report")"
}

# A record to a pipe has no identifiers, and so no sample type, which EBB events refuse.
ebb_events_open() {
	tell_reasons
	sleep 1000 &
	target=$!
	trap 'kill "$target"' EXIT
	one=cpu/event=0x1001e,ebb=1 two=cpu/event=0x2001e,ebb=1
	opens "$one/De"
	opens "$one,bhrb=1,ifm=2/De"
	opens "{$one/De,$two/}"
	opens cpu/event=0x1e,ebb=1/De 'an EBB event must name its counter'
	opens "{$one/De,cpu/event=0x2001e/}" 'leader and member of the group disagree on EBB'
	quiet
}

# Checks that a perf that runs during the change of drivers ends well, with its counts so far.
stat_across_insmod() {
	unload
	watch_log
	perf stat -x , -e cycles,instructions -o "$work/stat" sleep 2 &
	perf=$!
	sleep 1
	load
	wait "$perf" || fail "perf ended with status $?"
	cat "$work/stat"
	[ "$(grep -cE '^([0-9]+|<not (counted|supported)>),' "$work/stat")" = 2 ] ||
		fail "two events were asked for"
	quiet
	must perf stat -e cycles,instructions pmu_tool work
}

record_finds_the_function() {
	load
	must perf record -q -e instructions -c 1000000 -o "$work/data" pmu_tool work 200000000
	must perf report -i "$work/data" --stdio --sort symbol >"$work/report"
	grep -v '^#' "$work/report" | head -5
	grep -E '^ *(9[0-9]|100)\.[0-9]+%.*pmu_work_a' "$work/report" ||
		fail "pmu_work_a has not nearly all samples"
}

command -v perf >/dev/null || skip_all "there is no perf tool"
restore_at_end
run_tests drivers_are_observed names_are_supported_alike rules_of_ebb_apply terms_are_bits \
	ebb_events_open stat_across_insmod record_finds_the_function

#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Events under the built-in driver and under the module, in one boot: both have the same files in
# sysfs and the same names, and count or refuse the same events.
#
# The intended differences are listed in $additions here and in the rules of stricter.rs, each with
# its reason. events_perf.sh compares the events of the perf tool.

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"

PMU=/sys/bus/event_source/devices/cpu

# Files that only the module has: path, permissions, number of lines, content.
additions='format/bhrb 444 1 config:62
format/ebb 444 1 config:63
format/ifm 444 1 config:60-61'

# Prints each file in the PMU's folders: path, permissions, number of lines, content.
files() {
	for file in "$PMU"/format/* "$PMU"/events/* "$PMU"/caps/* "$PMU/type"; do
		echo "${file#"$PMU/"} $(stat -c %a "$file") $(wc -l <"$file") $(cat "$file")"
	done | sort
}

same() {
	diff "$1" "$2" || fail "- is the built-in driver's, + the module's"
}

# observe DRIVER: writes the files and outcomes that the tests compare to $work/DRIVER.
observe() {
	mkdir "$work/$1"
	must files >"$work/$1/files"
	must pmu_events_probe >"$work/$1/events"
}

drivers_are_observed() {
	under_both observe
	must pmu_events_probe rules >"$work/rules"
	wc -l "$work"/*/files "$work"/*/events
}

files_are_the_same() {
	grep -q '^events/cpu-cycles 444 1 event=0x' "$work/in-tree/files" ||
		fail "the built-in driver has no files"
	# The built-in driver's file caps/pmu_name lacks the newline at its end.
	echo "$additions" | cat "$work/in-tree/files" - | sed 's:^caps/pmu_name 444 0 :caps/pmu_name 444 1 :' |
		sort >"$work/expected"
	same "$work/expected" "$work/rust/files"
}

files_return() {
	unload
	must files >"$work/returned"
	load
	same "$work/in-tree/files" "$work/returned"
}

# Largest difference, in per cent, between counts of the probe's short work. A tick of a debug
# kernel takes a third as long as that work.
near=5
! is_debug_kernel || near=50

# agree SECTION: checks that the probe's lines of a section agree for both drivers, approximately
# for counts. Requests to which a rule applies must differ as the rule states.
agree() {
	for driver in in-tree rust; do
		grep "^$1 " "$work/$driver/events" >"$work/section.$driver"
	done
	for driver in in-tree rust; do
		cut -d ' ' -f 2 "$work/section.$driver" >"$work/requests.$driver"
	done
	diff "$work/requests.in-tree" "$work/requests.rust" ||
		fail "- is what only the built-in driver was asked for, + only the module"
	paste "$work/section.in-tree" "$work/section.rust" >"$work/both"
	awk '
		function is_count(text) { return text ~ /^[0-9]+$/ }
		function taken(text) { return is_count(text) || text == "opened" || text == "waits" }
		# Position of the event at which a group was refused.
		function reach(text) { return sub(/.*-at-/, "", text) ? text + 0 : 99 }
		function obeys(rule, module, in_tree) {
			if (errno[rule] == "taken") return module == in_tree || reach(module) > reach(in_tree)
			return index(module, errno[rule]) == 1 && reach(module) <= reach(in_tree)
		}
		function near(a, b) { return a * 100 <= b * percent && b * 100 <= a * percent }
		function wrong(text) {
			if (++differences <= 20) print text ": " $2 ": in-tree " $3 ", module " $7
		}
		FNR == NR { errno[$1] = $2; next }
		$2 != $6 || $4 != $8 { wrong("not the same request"); next }
		taken($3) { took++ }
		!taken($3) { refused++ }
		is_count($3) && $3 > 0 { counted++ }
		$4 != "same" {
			applied[$4]++
			if ($3 != $7) shown[$4]++
			if (!obeys($4, $7, $3)) wrong("not by the rule " $4)
			next
		}
		is_count($3) && is_count($7) ? !near($3, $7) : $3 != $7 { wrong("differs") }
		END {
			print took + 0 " taken, " counted + 0 " counted, " refused + 0 " refused in-tree"
			for (rule in applied) print rule ": " applied[rule] ", " shown[rule] + 0 " differ"
			print differences + 0 " differences"
			exit(took == 0 || refused == 0 && !all || differences > 0)
		}
	' all="$2" percent="$((100 + near))" "$work/rules" "$work/both" ||
		fail "the drivers differ, or there was nothing to compare"
}

events_with_names() { agree name all; }
generic_events() { agree generic; }
cache_events() { agree cache; }
codes_on_every_counter() { agree code; }
fields_of_the_code() { agree field; }
rules_of_ebb() { agree ebb; }
groups() { agree group; }

# A rule that makes no difference any more must be removed. Each run must meet at least the rules of
# its processor.
rules_make_a_difference() {
	case $(grep -m 1 '^cpu' /proc/cpuinfo) in
	*POWER8*) fewest=8 ;;
	*POWER9*) fewest=10 ;;
	*) fewest=10 ;;
	esac
	paste "$work/in-tree/events" "$work/rust/events" | awk -v fewest="$fewest" '
		FNR == NR { reason[$1] = $0; next }
		$4 == "same" { next }
		{ seen[$4]++ }
		$3 !~ /^E/ || $1 == "group" { shown[$4] += $3 != $7 }
		END {
			for (rule in seen) {
				rules++
				print shown[rule] + 0 " x " reason[rule]
				if (!shown[rule]) { print rule " makes no difference"; bad = 1 }
			}
			exit(bad || rules < fewest)
		}
	' "$work/rules" - || fail "rules of no use, or too few of them met"
}

restore_at_end
run_tests drivers_are_observed files_are_the_same files_return events_with_names \
	generic_events cache_events codes_on_every_counter fields_of_the_code rules_of_ebb groups \
	rules_make_a_difference

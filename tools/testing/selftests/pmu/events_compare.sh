#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Events under the built-in driver and under the module, in one boot: the same
# files in sysfs, the same names, and each event counted or refused alike.
#
# What is to differ is listed: $additions here, and the rules of stricter.rs, each
# with its reason. The tests of the perf tool need it (`scripts/vm run --perf`).

# The tests are called by `try`, by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/ktap.sh
. "$(dirname "$0")/ktap.sh"

PMU=/sys/bus/event_source/devices/cpu

# Files that only the module has: path, permissions, content.
additions='format/bhrb 444 config:62
format/ebb 444 config:63
format/ifm 444 config:60-61'

# Each file of the PMU's folders: path, permissions, content.
files() {
	for file in "$PMU"/format/* "$PMU"/events/* "$PMU"/caps/* "$PMU/type"; do
		echo "${file#"$PMU/"} $(stat -c %a "$file") $(cat "$file")"
	done | sort
}

# same FILE FILE: an explanation of a difference.
same() {
	diff "$1" "$2" || {
		why "- is the built-in driver's, + the module's"
		return 1
	}
}

# What the tests compare, of the driver that is there.
observe() {
	mkdir "$work/$1"
	must files >"$work/$1/files"
	must pmu_events_probe >"$work/$1/events"
}

drivers_are_observed() {
	unload
	observe in-tree
	load
	observe rust
	must pmu_events_probe rules >"$work/rules"
	wc -l "$work"/*/files "$work"/*/events
}

files_are_the_same() {
	grep -q '^events/cpu-cycles 444 event=0x' "$work/in-tree/files" || {
		why "the built-in driver has no files"
		return 1
	}
	echo "$additions" | cat "$work/in-tree/files" - | sort >"$work/expected"
	same "$work/expected" "$work/rust/files"
}

files_return() {
	unload
	must files >"$work/returned"
	load
	same "$work/in-tree/files" "$work/returned"
}

# How far apart, in percent, counts of the probe's short work may be. A tick of a
# debug kernel takes a third of that work.
near=5
! is_debug_kernel || near=50

# agree SECTION: the probe's lines of a section tell the same of both drivers,
# counts nearly, but for a request that one of the rules applies to.
agree() {
	for driver in in-tree rust; do
		grep "^$1 " "$work/$driver/events" >"$work/section.$driver"
	done
	paste "$work/section.in-tree" "$work/section.rust" >"$work/both"
	awk '
		function is_count(text) { return text ~ /^[0-9]+$/ }
		function taken(text) { return is_count(text) || text == "opened" || text == "waits" }
		# The number of the event that a group was refused at.
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
	' all="$2" percent="$((100 + near))" "$work/rules" "$work/both" || {
		why "the drivers differ, or there was nothing to compare"
		return 1
	}
}

events_with_names() {
	agree name all
}

generic_events() {
	agree generic
}

cache_events() {
	agree cache
}

codes_on_every_counter() {
	agree code
}

fields_of_the_code() {
	agree field
}

rules_of_ebb() {
	agree ebb
}

groups() {
	agree group
}

# A rule that makes no difference any more has to go. Nine or more are met on any CPU.
rules_make_a_difference() {
	paste "$work/in-tree/events" "$work/rust/events" | awk '
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
			exit(bad || rules < 9)
		}
	' "$work/rules" - || {
		why "rules of no use, or too few of them met"
		return 1
	}
}

begin

plan 11
try drivers_are_observed
try files_are_the_same
try files_return
try events_with_names
try generic_events
try cache_events
try codes_on_every_counter
try fields_of_the_code
try rules_of_ebb
try groups
try rules_make_a_difference
finish_as_begun

#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Runs a test program under the built-in driver and under the module, in one boot. Under the module
# no test may fail, and each test must pass that passes under the built-in driver.
#
# usage: drivers_compare.sh PROGRAM [ARGUMENT]...

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"

# Prints "PROGRAM:TEST OUTCOME" for each test in KTAP output. A single program has no name in it.
outcomes() {
	awk '
		/^# Subtest: / { program = $3 }
		/^ *(not )?ok [0-9]+ / {
			nested = /^ /
			outcome = / # SKIP/ ? "skipped" : /not ok/ ? "failed" : "passed"
			sub(/^ *(not )?ok [0-9]+ /, "")
			sub(/ .*/, "")
			print (nested ? program ":" : "") $0, outcome
		}
	' "$1"
}

# observe DRIVER: writes the program's output to $work/DRIVER.ktap and the tests' outcomes to
# $work/DRIVER.
observe() {
	$command >"$work/$1.ktap" 2>&1
	outcomes "$work/$1.ktap" >"$work/$1"
	echo "$1: $(grep -c ' passed$' "$work/$1") passed, $(grep -c ' failed$' "$work/$1") failed," \
		"$(grep -c ' skipped$' "$work/$1") skipped"
}

drivers_are_observed() {
	unload
	# Without this limit, a test that hangs under the built-in driver would take most of the
	# guest's time.
	KTAP_TIMEOUT=5
	export KTAP_TIMEOUT
	observe in-tree
	unset KTAP_TIMEOUT
	load
	watch_log
	observe rust
	quiet
	[ -s "$work/rust" ] || fail "there are no tests: $(head -n 3 "$work/rust.ktap")"
}

# Prints the tests with different outcomes, and the output of those that fail under the module.
no_test_is_worse() {
	awk -v in_tree="$work/in-tree" '
		BEGIN { while ((getline line < in_tree) > 0) { split(line, part, " "); before[part[1]] = part[2] } }
		$2 == "passed" { passed++ }
		$2 == "failed" || ($2 != "passed" && before[$1] == "passed") { print "WORSE: " $1 ": in-tree " before[$1] ", module " $2; worse++ }
		$2 == "passed" && before[$1] != "passed" { print "better: " $1 ": in-tree " before[$1] }
		{ delete before[$1] }
		END {
			for (test in before) if (before[test] == "passed") { print "WORSE: " test ": not there"; worse++ }
			exit(worse > 0 || passed == 0)
		}
	' "$work/rust" && return
	grep -E '^ *(#|not ok)' "$work/rust.ktap" | tail -n 60
	fail "tests that fail or are missing under the module"
}

command=$*
restore_at_end
run_tests drivers_are_observed no_test_is_worse

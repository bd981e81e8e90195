#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# What a sample costs in instructions under the built-in driver and under the
# module, in one boot: the module's may not cost more.
#
# Needs an instruction clock (`scripts/vm run --icount on`, the default).

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"

# In percent. A tick of the clock more or less in one of the runs compared is some ten
# instructions a sample.
NOISE=1

observe() {
	must pmu_sample_cost >"$work/$1"
}

samples_are_measured() {
	under_both observe
	echo 'samples and instructions each:'
	paste -d ' ' "$work/in-tree" "$work/rust" | awk '
		{ print $2 == "refused" ? $1 ": in-tree refused, rust " $4 " " $5 : $1 ": in-tree " $2 " " $3 ", rust " $5 " " $6 }
	'
	[ "$(awk '$2 > 500' "$work/rust" | wc -l)" = 6 ] ||
		fail "not six variants of 500 samples and more"
}

# costs_no_more VARIANT
costs_no_more() {
	awk -v name="$1" -v noise="$NOISE" '
		$1 == name { cost[++count] = $3 }
		END {
			print "in-tree " cost[1] ", rust " cost[2]
			exit(count != 2 || cost[1] < 100 || cost[2] < 100 || cost[2] > cost[1] * (1 + noise / 100))
		}
	' "$work/in-tree" "$work/rust" || fail "$1 costs more, or was not measured"
}

plain_sample() { costs_no_more plain; }
sample_with_all_branches() { costs_no_more any; }
sample_with_calls() { costs_no_more any_call; }
sample_with_conditional_branches() { costs_no_more cond; }

restore_at_end
run_tests samples_are_measured plain_sample sample_with_all_branches sample_with_calls \
	sample_with_conditional_branches

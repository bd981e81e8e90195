#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# What a sample costs in instructions under the built-in driver and under the
# module, in one boot: the module's may not cost more.
#
# Needs an instruction clock (`scripts/vm run --icount on`, the default).

# The tests are called by `try`, by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/ktap.sh
. "$(dirname "$0")/ktap.sh"

# In percent. A tick of the clock more or less in one of the runs compared is some ten
# instructions a sample.
NOISE=1

samples_are_measured() {
	unload
	must pmu_sample_cost >"$work/in-tree"
	load
	must pmu_sample_cost >"$work/rust"
	echo 'samples and instructions each:'
	paste -d ' ' "$work/in-tree" "$work/rust" | awk '
		{ print $2 == "refused" ? $1 ": in-tree refused, rust " $4 " " $5 : $1 ": in-tree " $2 " " $3 ", rust " $5 " " $6 }
	'
	[ "$(awk '$2 > 500' "$work/rust" | wc -l)" = 6 ] || {
		why "not six variants of 500 samples and more"
		return 1
	}
}

# costs_no_more VARIANT
costs_no_more() {
	awk -v name="$1" -v noise="$NOISE" '
		$1 == name { cost[++count] = $3 }
		END {
			print "in-tree " cost[1] ", rust " cost[2]
			exit(count != 2 || cost[1] < 100 || cost[2] < 100 || cost[2] > cost[1] * (1 + noise / 100))
		}
	' "$work/in-tree" "$work/rust" || {
		why "$1 costs more, or was not measured"
		return 1
	}
}

plain_sample() {
	costs_no_more plain
}

sample_with_all_branches() {
	costs_no_more any
}

sample_with_calls() {
	costs_no_more any_call
}

sample_with_conditional_branches() {
	costs_no_more cond
}

begin

plan 5
try samples_are_measured
try plain_sample
try sample_with_all_branches
try sample_with_calls
try sample_with_conditional_branches
finish_as_begun

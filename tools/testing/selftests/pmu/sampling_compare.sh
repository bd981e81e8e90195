#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Samples under the built-in driver and under the module, in one boot: as many of
# each kind of the kernel's work, which differs by what a sample takes of the time.

# The tests are called by `try`, by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/ktap.sh
. "$(dirname "$0")/ktap.sh"

# The module's share of the built-in driver's samples, in percent. Switches between
# tasks fall elsewhere from run to run, and so does what interrupts meet.
LEAST=90
MOST=112

# observe DRIVER: a line "KIND: NUMBER samples, ..." for each kind of work.
observe() {
	must pmu_sample_masked >"$work/$1.ktap"
	sed -n 's/^# \(.*: [0-9]* samples, .*\)/\1/p' "$work/$1.ktap" >"$work/$1"
}

drivers_are_observed() {
	unload
	observe in-tree
	load
	observe rust
	[ -s "$work/in-tree" ] && [ -s "$work/rust" ] || {
		why "nothing was sampled"
		return 1
	}
}

as_many_samples() {
	paste -d: "$work/in-tree" "$work/rust" | awk -F: -v least="$LEAST" -v most="$MOST" '
		{
			kinds++
			in_tree = $2 + 0
			module = $4 + 0
			print $1 ": in-tree " in_tree ", module " module
			if ($1 != $3 || in_tree < 100) bad = 1
			if (module * 100 < in_tree * least || module * 100 > in_tree * most) bad = 1
		}
		END { exit(bad || kinds < 6) }
	' || {
		why "not as many as under the built-in driver"
		return 1
	}
}

begin

plan 2
try drivers_are_observed
try as_many_samples
finish_as_begun

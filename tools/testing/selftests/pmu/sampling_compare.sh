#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Samples under the built-in driver and under the module, in one boot: as many of
# each kind of the kernel's work, which differs by what a sample takes of the time.

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"

# The module's share of the built-in driver's samples, in percent. Switches between
# tasks fall elsewhere from run to run, and so does what interrupts meet. Threads that
# sleep give some 2650 samples, of which 88.7 to 90.1 percent were seen; each sample is
# checked against the count, so these are fewer instructions, not samples lost.
LEAST=90
MOST=112
LEAST_SLEEPING=86

# observe DRIVER: a line "KIND: NUMBER samples, ..." for each kind of work.
observe() {
	must pmu_sample_masked >"$work/$1.ktap"
	sed -n 's/^# \(.*: [0-9]* samples, .*\)/\1/p' "$work/$1.ktap" >"$work/$1"
}

drivers_are_observed() {
	under_both observe
	[ -s "$work/in-tree" ] && [ -s "$work/rust" ] || fail "nothing was sampled"
}

as_many_samples() {
	paste -d: "$work/in-tree" "$work/rust" | awk -F: -v usually="$LEAST" -v most="$MOST" -v sleeping="$LEAST_SLEEPING" '
		{
			kinds++
			in_tree = $2 + 0
			module = $4 + 0
			least = $1 ~ /sleeping/ ? sleeping : usually
			print $1 ": in-tree " in_tree ", module " module
			if ($1 != $3 || in_tree < 100) bad = 1
			if (module * 100 < in_tree * least || module * 100 > in_tree * most) bad = 1
		}
		END { exit(bad || kinds < 6) }
	' || fail "not as many as under the built-in driver"
}

restore_at_end
run_tests drivers_are_observed as_many_samples

#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# ebbprof on programs that confine themselves with seccomp, in containers, and where perf_event_open
# is forbidden.
#
# Needs shared libraries and the perf tool in the guest (`scripts/vm run --libs --perf`), and a kernel
# with seccomp and namespaces (`--kernel debian`).

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/ebbprof/ebbprof_record.sh
. "$(dirname "$0")/ebbprof_record.sh"

# The handler makes no system calls: half of the samples are taken under the filter.
confined_program() {
	record 0 ebbprof_work confined 1000
	accounted 1000
	shares
}

# Checks that the filter of these tests works.
the_filter_kills() {
	status=0
	ebbprof_confine filter true || status=$?
	[ "$status" -eq 0 ] || fail "status $status"
	! ebbprof_confine filter pmu_tool count || fail "perf_event_open is not forbidden"
}

# With the recorder outside of the program's container, the program runs, and ebbprof reports why it
# has no samples.
program_in_a_container() {
	record 0 ebbprof_confine container ebbprof_work plain 1000
	must grep -q 'have no samples: they are in a PID namespace of their own' "$work/said"
}

# With the recorder in the same container, there are all samples.
recorder_in_a_container() {
	status=0
	ebbprof_confine container ebbprof record -c "$PERIOD" -o "$work/data" ebbprof_work threads 500 3 2>"$work/said" || status=$?
	cat "$work/said"
	[ "$status" -eq 0 ] || fail "status $status"
	accounted 1500 1.1 3
	shares
}

perf_event_open_is_forbidden() {
	status=0
	ebbprof_confine filter ebbprof record -c "$PERIOD" -o "$work/none" ebbprof_work plain 10 2>"$work/said" || status=$?
	cat "$work/said"
	[ "$status" -ne 0 ] || fail "it recorded"
	must grep -q 'seccomp filter' "$work/said"
}

run_tests confined_program the_filter_kills program_in_a_container recorder_in_a_container \
	perf_event_open_is_forbidden

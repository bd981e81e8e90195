#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# What ebbprof shows of its files: names of functions that are in no file.
#
# Needs shared libraries and the perf tool in the guest (`scripts/vm run --libs --perf`).

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/ebbprof/ebbprof_record.sh
. "$(dirname "$0")/ebbprof_record.sh"

# perf names the function as the program does, and finds as many samples in it.
code_that_is_made_has_its_name() {
	record 0 ebbprof_work make 2000
	accounted 2000
	map=$(ls /tmp/perf-*.map)
	shares "Made::by hand ${map#/tmp/}"
	must perf report -i "$work/data" --stdio -F sample,sym >"$work/perf"
	[ "$(awk '/ Made::by hand/ { print $1 }' "$work/perf")" -eq "$(awk '/Made::by hand/ { print $5 }' "$work/report")" ] ||
		fail "perf finds another number"
	# What somebody else has put there is not believed.
	chown nobody "$map"
	must ebbprof report "$work/data" -o "$work/report"
	! grep Made "$work/report" || fail "the names are somebody else's"
	rm "$map"
}

# The caller of what the kernel does not name there has a name, and its own callers.
vdso_has_its_names() {
	record 0 -g ebbprof_work ask 500 50
	must ebbprof report "$work/data" -o "$work/report"
	must ebbprof collapsed "$work/data" -o "$work/collapsed"
	cat "$work/report" "$work/collapsed"
	must grep -q '__kernel_clock_gettime  *\[vdso\]' "$work/report"
	must grep -Eq ';main;ask;__clock_gettime;__kernel_clock_gettime(;__c_kernel_clock_gettime|;\[vdso\]) ' "$work/collapsed"
	must perf report -i "$work/data" --no-children -g none --stdio -F sample,dso >"$work/perf"
	[ "$(awk '$2 == "[vdso]" { print $1 }' "$work/perf")" -eq "$(awk '/\[vdso\]$/ { n += $5 } END { print n }' "$work/report")" ] ||
		fail "perf finds another number"
}

command -v perf >/dev/null || skip_all "there is no perf tool"
[ -e /lib64/ld64.so.2 ] || skip_all "there are no shared libraries"
run_tests code_that_is_made_has_its_name vdso_has_its_names

#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The branches in ebbprof's samples of a program with known calls. QEMU records branches for POWER10
# and later.
#
# Needs shared libraries and the perf tool in the guest (`scripts/vm run --libs --perf`).

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"

# sampled OPTION...: records ebbprof_calls with these options.
sampled() {
	must ebbprof record -c 1009 -m 4096 -o "$work/data" "$@" ebbprof_calls 4000
	must perf script -i "$work/data" -F ip,brstack >"$work/script"
	must perf script -i "$work/data" -F brstacksym >"$work/names"
	[ "$(grep -c / "$work/script")" -ge 100 ] || fail "no samples with branches"
}

# pairs FILE: prints caller and callee of each branch in perf's list, for functions with names.
pairs() {
	tr ' ' '\n' <"$1" | awk -F / '/\// { sub(/\+.*/, "", $1); sub(/\+.*/, "", $2); print $1, $2 }' | sort -u
}

# named FILE: prints the pairs of the program's functions, except calls that main makes only once.
named() {
	pairs "$1" | grep -E '^(framed|library|main|outer|tail|variable|leaf) ' | grep -Ev '^main .*(plt_call|unknown)'
}

# The calls of main and of the functions that it calls. fifth() is called through a stub without a
# name.
calls='framed leaf
library [unknown]
main outer
outer framed
outer library
outer tail
outer variable
variable leaf'

# perf's own record of the program must have the same calls.
calls_are_the_programs() {
	sampled -b call
	named "$work/names" >"$work/pairs"
	cat "$work/pairs"
	sed -E 's/ .*plt_call.*/ [unknown]/' "$work/pairs" >"$work/found"
	echo "$calls" | must diff - "$work/found"
	must perf record -q -B -e cycles:u -c 20011 -j any_call,u -o "$work/perf.data" ebbprof_calls 40000
	must perf script -i "$work/perf.data" -F brstacksym >"$work/by_perf"
	head -n 3 "$work/by_perf"
	named "$work/by_perf" | must diff - "$work/pairs"
}

# No branch is taken between the target of one branch and the next one, or the sample.
branches_follow_each_other() {
	sampled -b any
	awk '
		function number(text,   n, i) {
			n = 0
			text = tolower(text)
			sub(/^0x/, "", text)
			for (i = 1; i <= length(text); i++)
				n = n * 16 + index("0123456789abcdef", substr(text, i, 1)) - 1
			return n
		}
		{
			next_one = number($1)
			for (i = 2; i <= NF; i++) {
				split($i, part, "/")
				to = number(part[2])
				all++
				if (to == 0) unknown++
				else if (to > next_one || next_one - to > 4096) gaps++
				next_one = number(part[1])
			}
		}
		END {
			print all, "branches,", gaps + 0, "gaps,", unknown + 0, "without a target"
			exit(!(all > 10000 && gaps < all / 200 && unknown == 0))
		}
	' "$work/script" || fail "the branches do not follow each other"
}

# In these functions, only the loops have conditional branches that are taken.
conditional_ones() {
	sampled -b cond
	pairs "$work/names" | grep -E '^(fifth|main) ' >"$work/pairs"
	cat "$work/pairs"
	printf 'fifth fifth\nmain main\n' | must diff - "$work/pairs"
	! pairs "$work/names" | grep -E '^(framed|leaf|tail|outer|library) ' || fail "there are unconditional branches"
}

# The filter selects indirect calls and returns. They must have their targets.
indirect_ones() {
	sampled -b ind_call
	pairs "$work/names" >"$work/pairs"
	cat "$work/pairs"
	must grep -q '^leaf framed$' "$work/pairs"
	! grep -q '^main outer$' "$work/pairs" || fail "a direct call"
}

# With both callers and branches, each is as without the other.
callers_stay() {
	sampled -g -b call
	must ebbprof collapsed "$work/data" -o "$work/collapsed"
	must grep -q ';main;outer;framed;leaf ' "$work/collapsed"
	pairs "$work/names" | must grep -q '^framed leaf$'
	# perf must find the same samples if it ignores the branches.
	must perf report -i "$work/data" --no-branch-stack --no-children -g none --stdio -F sample,sym >"$work/perf"
	must ebbprof report "$work/data" -o "$work/report"
	[ "$(awk '$3 == "leaf" { print $1 }' "$work/perf")" = "$(awk '$6 == "leaf" { print $5 }' "$work/report")" ] ||
		fail "perf finds another number"
}

without_bhrb_it_is_told() {
	for filter in any call; do
		status=0
		ebbprof record -b "$filter" -o "$work/none" ebbprof_calls 1 >"$work/said" 2>&1 || status=$?
		cat "$work/said"
		[ "$status" -eq 125 ] || fail "status $status"
		must grep -q 'this machine cannot record branches' "$work/said"
	done
	for filter in cond ind_call; do
		status=0
		ebbprof record -b "$filter" -o "$work/none" ebbprof_calls 1 >"$work/said" 2>&1 || status=$?
		cat "$work/said"
		[ "$status" -eq 125 ] || fail "status $status"
		must grep -q 'only supports the branch filters any and call' "$work/said"
	done
	[ ! -e "$work/none" ] || fail "it created a file"
}

command -v perf >/dev/null || skip_all "there is no perf tool"
[ -e /lib64/ld64.so.2 ] || skip_all "there are no shared libraries"
if grep -q '^cpu.*POWER[89]' /proc/cpuinfo; then
	run_tests without_bhrb_it_is_told
else
	run_tests calls_are_the_programs branches_follow_each_other conditional_ones indirect_ones callers_stay
fi

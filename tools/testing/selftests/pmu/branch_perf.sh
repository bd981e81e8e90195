#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The perf tool, as it is, on a program whose branches are known: what it counts,
# samples and reports against what the program does.
#
# Needs the perf tool in the guest (`scripts/vm run --perf`).

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"

# The branches of a round of pmu_branch_work: kind, pair of functions, how often.
branches='call branch_loop>f1 1
call f1>f2 1
call f1>f3 2
ind_call f1>f3 1
any_ret f2>f1 1
any_ret f3>f1 3
any_ret f1>branch_loop 1
cond f3>f3 3
cond branch_loop>branch_loop 1
ind_jmp f2>f2 1'
# Instructions of a round: all, a prime, and in each function. From one sample to the next there is
# the period, less what the PM interrupt counts, in an emulator always as much: no part of a round.
ROUND=61
instructions='branch_loop 9
f1 20
f2 8
f3 24'
ROUNDS=500000

# Samples of the program, 300 unless PERIOD says otherwise. It is a prime, so that they
# fall on all places of a round. By cycles, as an emulator may not count each instruction.
PERIOD=100003
# In a kernel that checks itself a program's start takes many times as long, and overflows
# in the kernel are the program's samples: as many samples, of more work.
! is_debug_kernel || ROUNDS=4000000 PERIOD=800011
record() {
	must perf record -q -B -e cycles:u -c "$PERIOD" -o "$work/data" "$@" pmu_branch_work "$ROUNDS"
}

# expected FILTER...: the pairs that the filters want, with their share in percent.
expected() {
	echo "$branches" | awk -v filters="$*" '
		BEGIN { count = split(filters, filter, " ") }
		{
			wanted = 0
			for (i = 1; i <= count; i++)
				if (filter[i] == "any" || filter[i] == $1 || filter[i] == "any_call" && $1 ~ /call$/)
					wanted = 1
			if (wanted) { pair[$2] += $3; all += $3 }
		}
		END { for (name in pair) print name, 100 * pair[name] / all }
	'
}

# compare FOUND EXPECTED: shares of names. A stack ends within a round, sooner or
# later by what its last records take, and there are only so many samples: a share
# may be a fifth off, or 1.5 percent. What surrounds the program's work, such as libc's
# start, has 2 to 4 percent; a record of the whole system begins before exec.
compare() {
	awk -v surroundings=8 '
		FNR == NR { found[$1] += $2; next }
		{
			expected[$1] = $2
			difference = found[$1] - $2
			if (difference < 0) difference = -difference
			if (difference > $2 / 5 && difference > 1.5) {
				print $1 ": " found[$1] + 0 " %, not " $2
				bad = 1
			}
		}
		END {
			for (name in found) if (!(name in expected)) { other += found[name]; others = others " " name }
			if (other > surroundings) { print other " % other:" others; bad = 1 }
			exit(bad || FNR == 0)
		}
	' "$1" "$2" || {
		sort -k2nr "$1" | head -n 12
		fail "not as the program does"
	}
}

# Prints the pairs of functions in the program's stacks of the record, with their
# shares. A record of the whole system has those of other programs too.
histogram() {
	must perf script -i "$work/data" -F brstacksym --comms pmu_branch_work >"$work/script"
	tr -s ' ' '\n' <"$work/script" | awk -F / '
		NF > 3 {
			sub(/\+0x.*/, "", $1)
			sub(/\+0x.*/, "", $2)
			pair[$1 ">" $2]++
			all++
		}
		END { for (name in pair) print name, 100 * pair[name] / all }
	'
}

# check_filter FILTER[,FILTER] OPTION...: records with -j, compares the stacks.
check_filter() {
	filter=$1
	shift
	record -j "$filter,u" "$@"
	histogram >"$work/found"
	expected "$(echo "$filter" | tr , ' ')" >"$work/expected"
	compare "$work/found" "$work/expected"
}

stat_counts_the_work() {
	must perf stat -x , -e cycles:u,instructions:u -o "$work/stat" pmu_tool work 100000000
	cat "$work/stat"
	# The emulator counts the kernel all the same; one with checks has more to do.
	most=103000000
	! is_debug_kernel || most=130000000
	awk -F , -v most="$most" '
		/^[0-9<]/ { good += $1 >= 99000000 && $1 <= most }
		END { exit(good != 2) }
	' "$work/stat" || fail "not the work's instructions"
}

report_shows_the_functions() {
	PERIOD=10007
	! is_debug_kernel || ROUNDS=20000000 PERIOD=800011
	record
	must perf report -i "$work/data" --stdio --sort symbol >"$work/report"
	# "13.37% [.] f2"
	awk '/^ *[0-9.]+%/ { sub("%", "", $1); print $3, $1 }' "$work/report" >"$work/found"
	echo "$instructions" | awk -v round="$ROUND" '{ print $1, 100 * $2 / round }' >"$work/expected"
	compare "$work/found" "$work/expected"
}

report_b_shows_the_pairs() {
	record -b
	must perf report -b -i "$work/data" --stdio --sort symbol_from,symbol_to >"$work/report"
	# "6.70%  [.] f1  [.] f2"
	awk '/^ *[0-9.]+%/ { sub("%", "", $1); print $3 ">" $5, $1 }' "$work/report" >"$work/found"
	expected any >"$work/expected"
	compare "$work/found" "$work/expected"
}

# The history has no calls that have not returned.
call_stacks_are_refused() {
	! perf record --call-graph lbr -e cycles:u -o "$work/data" true >"$work/said" 2>&1 || fail "recorded"
	cat "$work/said"
	grep -q "doesn't support branch stack sampling" "$work/said" || fail "without a reason"
}

# One buffer for each CPU, and children inherit, which is perf's default; without children; and all that
# a CPU does.
modes_of_perf() {
	for mode in '' --per-thread -a; do
		# shellcheck disable=SC2086 # an option, or none
		check_filter ind_call,cond $mode
	done
}

# perf tells the kinds that the driver saved.
types_are_told() {
	record -j any,save_type,u
	must perf script -i "$work/data" -F brstacksym >"$work/script"
	tr -s ' ' '\n' <"$work/script" | awk -F / '
		NF > 6 { kind[$7]++; all++ }
		END { for (name in kind) print name, 100 * kind[name] / all }
	' >"$work/found"
	printf '%s\n' 'CALL 26.7' 'IND_CALL 6.7' 'RET 33.3' 'COND 26.7' 'IND 6.7' >"$work/expected"
	compare "$work/found" "$work/expected"
}

command -v perf >/dev/null || skip_all "there is no perf tool"
restore_at_end
${DRIVER:-load}
run_tests stat_counts_the_work report_shows_the_functions report_b_shows_the_pairs modes_of_perf \
	call_stacks_are_refused types_are_told

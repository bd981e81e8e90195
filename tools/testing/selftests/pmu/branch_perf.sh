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
filters='any any_call any_ret ind_call cond call ind_jmp'
# What else perf record is told.
mode=

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
	most=6
	[ "${mode-}" != -a ] || most=8
	awk -v surroundings="$most" '
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

record_b_has_all_branches() {
	record -b
	histogram >"$work/found"
	expected any >"$work/expected"
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

# Both ends of each branch are addresses in the program.
script_shows_addresses() {
	record -b
	must perf script -i "$work/data" -F brstack >"$work/script"
	tr -s ' ' '\n' <"$work/script" | awk -F / '
		NF > 3 { all++; good += $1 ~ /^0x[0-9a-f]+$/ && $2 ~ /^0x[0-9a-f]+$/ && length($1) < 18 }
		END { print good + 0 " of " all + 0; exit(all < 1000 || good < all) }
	' || fail "not addresses of user space"
}

# The code from each branch's target on. (perf takes instructions for those of x86, so only where
# it begins means something.)
script_shows_instructions() {
	record -b
	must perf script -i "$work/data" -F brstack >"$work/script"
	tr -s ' ' '\n' <"$work/script" | awk -F / 'NF > 3 { print substr($2, 3) }' | sort -u >"$work/targets"
	must perf script -i "$work/data" -F brstackinsn >"$work/script"
	awk '
		FNR == NR { target[$1]; next }
		/\tinsn:/ {
			sub(/^0*/, "", $1)
			if (begins) { all++; good += $1 in target }
			begins = /PRED/
			next
		}
		# The oldest branch comes first, alone. Names of functions come within code, too.
		!/:$/ { begins = /mismatch/ }
		END { print good + 0 " of " all + 0; exit(all < 1000 || good < all) }
	' "$work/targets" "$work/script" || fail "code that begins at no target"
}

# The pairs of functions on the way to where samples were. The lines "f1 +28" of a chain are target
# and branch of the newest one, of the one before, and so on.
report_shows_the_history() {
	record -b
	must perf report --branch-history -i "$work/data" --stdio --no-children >"$work/report"
	awk '
		$NF !~ /^\+[0-9]+$/ { to = ""; next }
		{
			if (/--/) to = ""
			name = $(NF - 1)
			sub(/.*-/, "", name)
			if (to != "" && name != to && name ~ /^(branch_loop|f[123])$/ && to ~ /^(branch_loop|f[123])$/)
				print name ">" to
			to = name
		}
	' "$work/report" | sort -u >"$work/found"
	echo "$branches" | awk '{ split($2, end, ">") } end[1] != end[2] { print $2 }' | sort -u >"$work/expected"
	diff "$work/expected" "$work/found" || fail "- is the program's, + the report's"
}

# The history has no calls that have not returned.
call_stacks_are_refused() {
	! perf record --call-graph lbr -e cycles:u -o "$work/data" true >"$work/said" 2>&1 || fail "recorded"
	cat "$work/said"
	grep -q "doesn't support branch stack sampling" "$work/said" || fail "without a reason"
}

annotate_shows_the_code() {
	record
	must perf annotate -i "$work/data" --stdio -s f3 >"$work/code" 2>&1
	head -n 30 "$work/code"
	must grep -q 'beq.*f3' "$work/code"
	must grep -Eq '[0-9]+\.[0-9]+ .*nop' "$work/code"
}

# each_of COUNT FILTER[,FILTER]...: checks each, with the options of perf in $mode.
each_of() {
	[ $(($# - 1)) = "$1" ] || fail "$(($# - 1)) filters"
	shift
	for filter; do
		# shellcheck disable=SC2086
		check_filter "$filter" $mode
	done
}

# Two different ones of the filters, each such pair once.
pairs() {
	rest=$filters
	for one in $filters; do
		rest=${rest#"$one"}
		for other in $rest; do
			echo "$one,$other"
		done
		rest=${rest# }
	done
}

# perf's default: one buffer for each CPU, and children inherit.
each_filter() {
	# shellcheck disable=SC2086
	each_of 7 $filters
}

each_pair() {
	# shellcheck disable=SC2046
	each_of 21 $(pairs)
}

# Without children, and with all that a CPU does.
each_filter_per_thread() {
	mode=--per-thread
	each_filter
}

each_filter_system_wide() {
	mode=-a
	each_filter
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
run_tests stat_counts_the_work report_shows_the_functions record_b_has_all_branches \
	report_b_shows_the_pairs script_shows_addresses script_shows_instructions \
	report_shows_the_history call_stacks_are_refused annotate_shows_the_code each_filter \
	each_pair each_filter_per_thread each_filter_system_wide types_are_told

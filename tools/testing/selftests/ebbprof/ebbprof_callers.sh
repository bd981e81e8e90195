#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The callers that ebbprof finds, of a program whose callers are known at each instruction.
#
# Needs shared libraries and the perf tool in the guest (`scripts/vm run --libs --perf`).

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"

# The stacks of the program, from main on. A stub of the PLT has no name.
stacks='outer
outer;framed
outer;framed;leaf
outer;tail
outer;library
outer;library;[ebbprof_calls]
outer;library;fifth
outer;variable
outer;variable;leaf'
functions='leaf framed tail library variable outer'

must ebbprof record -g -c 211 -m 4096 -o "$work/data" ebbprof_calls 8000

# from_main FILE: stacks with their counts, that have main in them, from main's callee on.
from_main() {
	sed -n 's/^.*;main;\(.*\) \([0-9]*\)$/\2 \1/p' "$1" | awk '
		{ n = $1; sub(/^[0-9]* /, ""); count[$0] += n }
		END { for (stack in count) print stack, count[stack] }
	' | sort
}

# Each stack of the program is there, no other is, and each has main in it.
stacks_are_the_programs() {
	must ebbprof collapsed "$work/data" -o "$work/collapsed"
	from_main "$work/collapsed" >"$work/found"
	cat "$work/found"
	grep '^outer' "$work/found" | sed 's/ [0-9]*$//' >"$work/names"
	echo "$stacks" | sort >"$work/expected"
	must diff "$work/expected" "$work/names"
	grep -E '(leaf|framed|tail|library|variable|outer) [0-9]*$' "$work/collapsed" | grep -v ';main;' >"$work/lost"
	must [ ! -s "$work/lost" ]
}

# At each instruction of the functions a sample is taken, by some period, from the first to the last
# where one is; and in each of these runs each stack is one of the program's.
all_instructions_are_sampled() {
	for period in 199 211 223 227 229 233 239 241; do
		must ebbprof record -g -c "$period" -m 4096 -o "$work/swept" ebbprof_calls 1500
		must ebbprof collapsed "$work/swept" -o "$work/collapsed"
		from_main "$work/collapsed" | grep '^outer' | sed 's/ [0-9]*$//' >"$work/names"
		! grep -vxF "$stacks" "$work/names" || fail "period $period: other stacks"
		must perf script -i "$work/swept" -G -F ip,sym,symoff
	done >"$work/script"
	for function in $functions; do
		awk -F '[ +]+' -v name="$function" '$3 == name { print $4 }' "$work/script" | sort -u |
			while read -r offset; do
				echo $((offset / 4))
			done | sort -n >"$work/offsets"
		first=$(head -n 1 "$work/offsets") last=$(tail -n 1 "$work/offsets")
		echo "$function: $(wc -l <"$work/offsets") from $first to $last"
		# A call of the same object leaves out the first two.
		[ "$first" -le 2 ] || fail "$function: not its first instruction"
		[ "$(wc -l <"$work/offsets")" -eq $((last - first + 1)) ] || fail "$function: not all instructions"
	done
}

# perf finds the same stacks, and as many of each.
perf_finds_the_same() {
	must perf script -i "$work/data" -F ip,sym >"$work/script"
	awk '
		NF == 0 { if (stack) count[stack]++; stack = ""; next }
		{ name = $2 ~ /plt_call/ ? "[ebbprof_calls]" : $2; stack = stack ? name ";" stack : name }
		END { if (stack) count[stack]++; for (stack in count) print stack, count[stack] }
	' "$work/script" >"$work/by_perf"
	from_main "$work/by_perf" | grep ^outer >"$work/by_perf.main"
	ebbprof collapsed "$work/data" -o "$work/collapsed"
	from_main "$work/collapsed" | grep ^outer >"$work/by_ebbprof.main"
	must diff "$work/by_perf.main" "$work/by_ebbprof.main"
}

flame_graph_has_the_functions() {
	must ebbprof flame "$work/data" -o "$work/flame.svg"
	must grep -q '<svg' "$work/flame.svg"
	for function in $functions; do
		must grep -q "<title>$function (" "$work/flame.svg"
	done
}

command -v perf >/dev/null || skip_all "there is no perf tool"
run_tests stacks_are_the_programs all_instructions_are_sampled perf_finds_the_same flame_graph_has_the_functions

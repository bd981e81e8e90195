#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The callers that ebbprof finds in a program whose callers are known at each instruction.
#
# Needs shared libraries and the perf tool in the guest (`scripts/vm run --libs --perf`).

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"

# The stacks of the program below main. A stub of the PLT has no name.
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

# Traced or not, the program must be at the same addresses.
echo 0 >/proc/sys/kernel/randomize_va_space
must ebbprof record -g -c 211 -m 4096 -o "$work/data" ebbprof_calls 8000
periods='199 211 223 227 229 233 239 241'
for period in $periods; do
	must ebbprof record -g -c "$period" -m 4096 -o "$work/swept.$period" ebbprof_calls 1500
	must perf script -i "$work/swept.$period" -F ip,sym,symoff
done >"$work/swept"

# from_main FILE: prints the stacks with main in them, from main's callee on, and their counts.
from_main() {
	sed -n 's/^.*;main;\(.*\) \([0-9]*\)$/\2 \1/p' "$1" | awk '
		{ n = $1; sub(/^[0-9]* /, ""); count[$0] += n }
		END { for (stack in count) print stack, count[stack] }
	' | sort
}

# Each stack of the program must be found, no other may be, and each must have main in it.
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

# The program traces itself, following its calls and returns, and prints the true callers at each
# instruction. The samples must have the same callers. At least half of the instructions must have
# samples; which ones do depends on the emulator. Samples of the signal's function, on another
# stack, have one caller.
callers_are_true() {
	must env LD_PRELOAD="$programs/libebbprof.so" ebbprof_calls 3 steps >"$work/steps"
	awk '
		function sample(   place) {
			place = index(stack, " " end " ")
			if (place) {
				tails[substr(stack, place)]++
				stack = substr(stack, 1, place) end
			}
			if (stack in true) {
				sampled[stack]
				samples++
			} else if (place || words != 2) {
				print "not true:", stack
				bad = 1
			}
		}
		FNR == NR {
			end = $NF
			addresses[$1]
			if (true[$0]++ == 1) all++
			next
		}
		NF {
			stack = words++ ? stack " " $1 : $1
			if (words == 1) address = $1
			next
		}
		words {
			stack = stack " "
			if (address in addresses) sample()
			words = 0
		}
		END {
			for (stack in true)
				if (true[stack] > 1) found += stack in sampled
			# Below main, all samples must have the same rest of the chain.
			for (tail in tails) {
				print tails[tail], "below main:", tail
				different++
			}
			print samples, "samples of", found, "of", all, "instructions, each with its callers"
			exit(bad || different != 1 || all < 100 || found * 2 < all)
		}
	' "$work/steps" "$work/swept" || fail "not the true callers"
}

flame_graph_has_the_functions() {
	must ebbprof flame "$work/data" -o "$work/flame.svg"
	must grep -q '<svg' "$work/flame.svg"
	for function in $functions; do
		must grep -q "<title>$function (" "$work/flame.svg"
	done
}

command -v perf >/dev/null || skip_all "there is no perf tool"
run_tests stacks_are_the_programs callers_are_true flame_graph_has_the_functions

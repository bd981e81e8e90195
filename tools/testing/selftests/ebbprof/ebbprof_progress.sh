#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# What ebbprof tells people while it records and at the end.
#
# Needs shared libraries in the guest (`scripts/vm run --libs`).

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/ebbprof/ebbprof_record.sh
. "$(dirname "$0")/ebbprof_record.sh"

# It goes on, and its line is gone at the end.
progress_is_on_a_terminal() {
	must ebbprof_terminal ebbprof record -c "$PERIOD" -o "$work/data" ebbprof_work rest 100 4 >"$work/screen"
	tr '\r' '\n' <"$work/screen" | sed -n 's/.*ebbprof: \([0-9]*\) samples of 1 threads so far, 0 lost.*/\1/p' >"$work/lines"
	cat "$work/lines"
	awk '$1 <= last { exit 1 } { last = $1 } END { exit(NR < 2) }' "$work/lines" || fail "no progress"
	tr '\r' '\n' <"$work/screen" | tail -n 5 | cat -v
	erase=$(printf '\033[K')
	tr '\r' '\n' <"$work/screen" | grep -qF "${erase}ebbprof: $(tail -n 1 "$work/lines") samples" || fail "no line"
	tr '\r' '\n' <"$work/screen" | grep -q "^${erase%K}Kebbprof: [0-9]* samples of 1 threads, 0 lost, in" ||
		fail "the line stays"
	record 0 ebbprof_work rest 100 2
	! grep 'so far' "$work/said" || fail "progress without a terminal"
}

# cost: sets `each` to the nanoseconds of a sample, `caller` of a caller, and `time` to the program's.
cost() {
	must grep -q '^ebbprof: the samples took' "$work/said"
	read -r share time each caller <<-END
		$(sed -n 's/^ebbprof: the samples took \([0-9.]*\)% of the program.s \([0-9.]*\) s: \([0-9.]*\) ns each\(, \([0-9.]*\) ns per caller\)\{0,1\}, .*/\1 \2 \3 \5/p' "$work/said")
	END
}

# It is what the program takes more with many samples than with few.
cost_is_what_it_takes_more() {
	for option in '' -g; do
		PERIOD=500009
		# shellcheck disable=SC2086 # an option, or none
		record 0 $option ebbprof_work plain 10000
		cost
		few=$time
		PERIOD=1009
		# shellcheck disable=SC2086 # as before
		record 0 $option ebbprof_work plain 10000
		cost
		samples=$(said_samples | cut -d ' ' -f 1)
		echo "from $few s to $time s by $samples samples of $each ns and ${caller:-0} ns a caller: $share%"
		awk -v few="$few" -v many="$time" -v samples="$samples" -v each="$each" -v share="$share" -v caller="${caller:-0}" '
			BEGIN {
				taken = (many - few) / samples * 1e9
				told = share / 100 * many / samples * 1e9
				print taken, "ns taken,", told, "ns told"
				exit(!(told > taken * 0.8 && told < taken * 1.25 && each <= told * 1.01 && each > 0))
			}
		' || fail "not what it has cost"
	done
	# The handler takes eight instructions or some more for each, and the guest a nanosecond for an instruction.
	# What a debug kernel takes of a sample in QEMU differs by more.
	is_debug_kernel || awk -v caller="${caller:-0}" 'BEGIN { exit(!(caller > 7 && caller < 13)) }' || fail "no cost of callers"
}

[ -e /lib64/ld64.so.2 ] || skip_all "there are no shared libraries"
run_tests progress_is_on_a_terminal cost_is_what_it_takes_more

#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The reports of ebbprof: shares and their intervals, names of functions that are in no file or that
# a compiler has mangled, comparisons of two runs, and colours.
#
# Needs shared libraries and the perf tool in the guest (`scripts/vm run --libs --perf`).

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/ebbprof/ebbprof_record.sh
. "$(dirname "$0")/ebbprof_record.sh"

# Reports by function, object and thread have the same number of samples. Each line has its share
# and the interval (Wilson's score).
shares_have_their_intervals() {
	record 0 ebbprof_work threads 300 3
	for by in symbol object thread; do
		must ebbprof report --by "$by" -n 1000 "$work/data" -o "$work/$by"
		awk '
			# The method of Newton, as the awk of busybox has no sqrt().
			function sqrt_of(x,    root, n) {
				root = 1
				for (n = 0; n < 60; n++)
					root = (root + x / root) / 2
				return root
			}
			function off(a, b) { return a - b > 0.0051 || b - a > 0.0051 }
			NR == 1 { all = $1; z = 1.959964 }
			$3 == "-" {
				sum += $5
				p = $5 / all
				middle = p + z * z / (2 * all)
				spread = z * sqrt_of(p * (1 - p) / all + z * z / (4 * all * all))
				whole = 1 + z * z / all
				if (off($1, 100 * p) || off($2, 100 * (middle - spread) / whole) || off($4, 100 * (middle + spread) / whole))
					bad = 1
				if ($5 > before && before)
					bad = 1
				before = $5
			}
			END { exit(bad || !sum || sum != all) }
		' "$work/$by" || fail "by $by: not the shares of its samples"
	done
	cat "$work/symbol" "$work/object" "$work/thread"
	# The functions of an object have as many samples as the object.
	[ "$(awk '$7 == "libebbprof_work.so" { n += $5 } END { print n }' "$work/symbol")" -eq \
		"$(awk '$6 == "libebbprof_work.so" { print $5 }' "$work/object")" ] || fail "not the samples of the object"
	[ "$(awk '$3 == "-"' "$work/thread" | wc -l)" -eq 4 ] || fail "not four threads"
	must ebbprof report -n 2 "$work/data" -o "$work/report"
	must grep -q "^\.\.\. and $(($(awk '$3 == "-"' "$work/symbol" | wc -l) - 2)) more$" "$work/report"
}

# Escape sequences are written to terminals only, unless the environment requests them, and never to
# a file. A recorded name cannot contain one.
colours_are_for_terminals() {
	escape=$(printf '\033')
	named="$programs/bad${escape}name"
	cp "$programs/ebbprof_work" "$named"
	record 0 "$named" plain 500
	rm "$named"
	must ebbprof report "$work/data" >"$work/plain"
	! grep -F "$escape" "$work/plain" || fail "a pipe gets colours"
	must env CLICOLOR_FORCE=1 ebbprof report "$work/data" >"$work/coloured"
	must grep -qF "${escape}[31m" "$work/coloured"
	must grep -qF "${escape}[1m  share" "$work/coloured"
	sed "s/$escape\[[0-9;]*m//g" "$work/coloured" >"$work/stripped"
	must cmp "$work/stripped" "$work/plain"
	must env CLICOLOR_FORCE=1 ebbprof report "$work/data" -o "$work/file"
	must cmp "$work/file" "$work/plain"
	must ebbprof collapsed "$work/data" -o "$work/collapsed"
	! grep -F "$escape" "$work/collapsed" || fail "a name contains an escape sequence"
	must grep -q '^bad?name;' "$work/collapsed"
}

# Names are shown as perf shows them: C++ names without parameters.
compilers_names_are_readable() {
	record 0 ebbprof_work mangled 1000
	shares 'outer::inner ebbprof_work'
	must perf report -i "$work/data" --stdio -F sample,sym >"$work/perf"
	[ "$(awk '/ outer::inner/ { print $1 }' "$work/perf")" -eq "$(awk '/outer::inner/ { print $5 }' "$work/report")" ] ||
		fail "perf finds another number"
}

# A program's symbols may be in a separate file, which is found by its build ID.
stripped_program_has_its_names() {
	cp "$programs/ebbprof_stripped" "$programs/libebbprof_work.so" "$work/"
	record 0 "$work/ebbprof_stripped" plain 500
	must ebbprof report "$work/data" -o "$work/report"
	cat "$work/report"
	! grep 'half  *ebbprof_stripped' "$work/report" || fail "it is not stripped"
	id=$(perf buildid-list -i "$work/data" | sed -n 's/ .*ebbprof_stripped$//p')
	rest=${id#??}
	folder=/usr/lib/debug/.build-id/${id%"$rest"}
	must mkdir -p "$folder"
	must cp "$programs/ebbprof_stripped.debug" "$folder/$rest.debug"
	must ebbprof report "$work/data" -o "$work/report"
	cat "$work/report"
	awk -v around="$around" '
		$6 == "half" { share = $1 / 50 }
		END { exit(!(share > 1 - around && share < 1 + around)) }
	' "$work/report" || fail "half() does not have half of the samples"
	# The symbol file does not have the program's address ranges. A copy of the program in
	# perf's cache has them.
	aside=$work/home/.debug/.build-id/${id%"$rest"}/$rest
	must mkdir -p "$aside"
	mv "$work/ebbprof_stripped" "$aside/elf"
	must env HOME="$work/home" ebbprof report "$work/data" -o "$work/again"
	rm -r "$folder/$rest.debug" "${work:?}/home"
	must diff "$work/report" "$work/again"
}

# The names are those of the recorded program, or missing if another program is at its path now. A
# copy of the recorded program that `perf buildid-cache` has stored provides them.
rebuilt_program_lends_no_names() {
	mkdir "$work/home"
	cp "$programs/ebbprof_work" "$programs/libebbprof_work.so" "$work/"
	record 0 "$work/ebbprof_work" plain 500
	must ebbprof report "$work/data" 2>"$work/said" >"$work/before"
	[ ! -s "$work/said" ] || fail "complaints of the program as it was: $(cat "$work/said")"
	# Other functions have the addresses of the recorded ones.
	cp "$programs/ebbprof_storm" "$work/ebbprof_work"
	must env HOME="$work/home" ebbprof report "$work/data" 2>"$work/said" >"$work/report"
	cat "$work/said" "$work/report"
	must grep -q "/ebbprof_work: the file has changed since it was recorded" "$work/said"
	[ "$(wc -l <"$work/said")" -eq 1 ] || fail "not one line"
	[ "$(awk '$7 == "ebbprof_work" { print $6 }' "$work/report")" = '[unknown]' ] || fail "names of another program"
	must grep -q ' fifth  *libebbprof_work.so' "$work/report"
	id=$(perf buildid-list -i "$programs/ebbprof_work")
	rest=${id#??}
	folder=$work/home/.debug/.build-id/${id%"$rest"}/$rest
	must mkdir -p "$folder"
	cp "$programs/ebbprof_work" "$folder/elf"
	must env HOME="$work/home" ebbprof report "$work/data" 2>"$work/said" >"$work/report"
	must diff "$work/before" "$work/report"
	[ ! -s "$work/said" ] || fail "complaints: $(cat "$work/said")"
}

# A cut file is refused. `sound.rs` tests all other defects.
damaged_file_is_refused() {
	record 0 ebbprof_work plain 100
	head -c 200 "$work/data" >"$work/damaged"
	for command in report collapsed flame pprof; do
		status=0
		ebbprof "$command" "$work/damaged" -o /dev/null 2>"$work/said" || status=$?
		[ "$status" -eq 125 ] || fail "$command: status $status"
		must grep -q '^ebbprof: .*/damaged: not a valid perf.data file: ' "$work/said"
	done
}

# perf uses the program's name for the function, and finds as many samples in it.
code_that_is_made_has_its_name() {
	record 0 ebbprof_work make 2000
	accounted 2000
	map=$(ls /tmp/perf-*.map)
	shares "Made::by hand ${map#/tmp/}"
	must perf report -i "$work/data" --stdio -F sample,sym >"$work/perf"
	[ "$(awk '/ Made::by hand/ { print $1 }' "$work/perf")" -eq "$(awk '/Made::by hand/ { print $5 }' "$work/report")" ] ||
		fail "perf finds another number"
	# A map file of another user is ignored.
	chown nobody "$map"
	must ebbprof report "$work/data" -o "$work/report"
	! grep Made "$work/report" || fail "the names are those of another user"
	rm "$map"
}

# The function of the C library that calls the vDSO has a name and callers, even where the kernel
# names no function.
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

# changes OPTION...: compares the run in `before` with the last one.
changes() {
	must ebbprof compare "$@" "$work/before" "$work/data" -o "$work/compared"
	cat "$work/compared"
}

# change FUNCTION LEAST MOST MARK: checks the change of the function in the last comparison, in per
# cent.
change() {
	awk -v name="$1" -v least="$2" -v most="$3" -v mark="$4" '
		$0 ~ " " name " " {
			found = 1
			if ($3 + 0 < least || $3 + 0 > most || ($7 == "*" ? "*" : "-") != mark)
				bad = 1
		}
		END { exit(bad || !found) }
	' "$work/compared" || fail "$1: not from $2 to $3, or not marked $4"
}

# half() does half of its work in the second run: a quarter of all work is missing, and the other
# functions do the same work.
comparison_finds_what_is_gone() {
	record 0 ebbprof_work plain 2000
	mv "$work/data" "$work/before"
	record 0 ebbprof_work less 2000
	changes
	change half -26.5 -23.5 '*'
	change three_tenths -1.5 1.5 -
	change fifth -1.5 1.5 -
	must grep -Eq '^Total -2[3-6]\.[0-9]*% cycles:u$' "$work/compared"
	# The total is smaller, so the other functions have larger shares.
	changes --shares
	change half -18.2 -15.2 '*'
	change three_tenths 8.5 11.5 '*'
	# A comparison of a file with itself shows no changes.
	must ebbprof compare "$work/data" "$work/data" -o "$work/compared"
	! grep -F '*' "$work/compared" || fail "a file differs from itself"
	# Files with different events cannot be compared.
	mv "$work/data" "$work/before"
	record 0 -e instructions ebbprof_work plain 100
	status=0
	ebbprof compare "$work/before" "$work/data" 2>"$work/said" || status=$?
	[ "$status" -eq 125 ] || fail "status $status"
	must grep -q 'different events: cycles:u and instructions:u' "$work/said"
}

command -v perf >/dev/null || skip_all "there is no perf tool"
[ -e /lib64/ld64.so.2 ] || skip_all "there are no shared libraries"
run_tests shares_have_their_intervals colours_are_for_terminals compilers_names_are_readable \
	stripped_program_has_its_names rebuilt_program_lends_no_names damaged_file_is_refused \
	code_that_is_made_has_its_name vdso_has_its_names comparison_finds_what_is_gone

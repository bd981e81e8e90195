#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Runs perf's own tests (`perf test`) under the built-in driver and under the module, in one boot. A
# test may fail under the module only if it fails under the built-in driver, too.
#
# usage: perf_tests.sh [all | NUMBER...]
#
# Without an argument, it runs the short tests that open events of the PMU. All tests take half an
# hour in an emulator. Needs `scripts/vm run --perf-tests`.

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"

# The tests need GNU features that busybox lacks: a mktemp with three or more X anywhere in the
# name, and a taskset with long options.
mkdir "$work/bin"
cat >"$work/bin/mktemp" <<'END'
#!/bin/bash
set -o noclobber
umask 077
make=file
while [[ $1 == -* ]]; do
	[ "$1" != -d ] || make=folder
	[ "$1" != -u ] || make=name
	shift
done
[[ ${1-/tmp/tmp.XXX} =~ ^(.*[^X])XXX+([^X]*)$ ]] || exit
for _ in {1..100}; do
	name=${BASH_REMATCH[1]}$RANDOM$RANDOM${BASH_REMATCH[2]}
	case $make in
	file) : >"$name" ;;
	folder) mkdir "$name" ;;
	name) [ ! -e "$name" ] ;;
	esac && echo "$name" && exit
done
exit 1
END
cat >"$work/bin/taskset" <<'END'
#!/bin/bash
exec busybox taskset "${@/#--cpu-list/-c}"
END
chmod +x "$work/bin/mktemp" "$work/bin/taskset"
PATH=$work/bin:/opt/perf/bin:$PATH
# Time limit of one of perf's tests, in seconds of the guest.
LIMIT=${PERF_TEST_LIMIT:-120}

chosen='Parse event definition strings
Sysfs PMU tests
Roundtrip evsel->name
Software clock events period values
Use a dummy software event to keep tracking
Thread map
Event times
Read backward ring buffer
Sigtrap
Event groups
mmap interface tests
Number of exit events of a simple workload
Perf attribute expectations test
perf record LBR tests
perf record sideband tests
record weak terms
Check branch stack sampling
Perf event open fallback test'

# choose [all | NUMBER...]: writes "NUMBER: DESCRIPTION" of the requested tests to $work/tests.
choose() {
	perf test list 2>&1 | sed -nE 's/^ *([0-9]+): *(.*[^ ]) *$/\1: \2/p' >"$work/list"
	case $* in
	all) cat "$work/list" ;;
	'')
		echo "$chosen" >"$work/chosen"
		awk 'FNR == NR { wanted[$0]; next } { name = $0; sub(/^[0-9]+: /, "", name) } name in wanted' \
			"$work/chosen" "$work/list"
		;;
	*) for number; do grep "^$number: " "$work/list"; done ;;
	esac >"$work/tests"
}

# The test of branch stacks also requires branches of the kernel, which a processor of ISA v3.1
# never records. If everything else is right, its state is "user": it passes for user space.
BRANCHES='Check branch stack sampling'
but_for_kernel() {
	grep '^Testing .*\[' "$work/one" | sort -u >"$work/parts"
	if grep -q FAILED "$work/states" && grep -q 'user branch .*\[Passed' "$work/parts" &&
		! grep -Ev '^Testing (syscalls|kernel branch sampling) ' "$work/parts" | grep -q '\[Failed'; then
		echo "$number user" >"$work/states"
	fi
}

# Runs test $number. Writes its output to $work/one, and "NUMBER STATE" of the test and its subtests
# to $work/states. STATE is Ok, Skip, FAILED or late.
run_one() {
	timeout "$LIMIT" perf test -vv -S "$number" >"$work/one" 2>&1 </dev/null
	status=$?
	sed -nE 's/^ *([0-9]+(\.[0-9]+)?): .*: *(Ok|Skip|FAILED).*$/\1 \3/p' "$work/one" >"$work/states"
	# A test that was killed or crashed has no line in the output.
	if ! grep -q "^${number}[ .]" "$work/states"; then
		state=FAILED
		case $status in 124 | 143) state=late ;; esac
		echo "$number $state" >>"$work/states"
	fi
	[ "$name" != "$BRANCHES" ] || but_for_kernel
}

# observe DRIVER: writes the states of all tests to $work/DRIVER.
observe() {
	while read -r number name; do
		number=${number%:}
		start=$(date +%s)
		run_one
		cat "$work/states" >>"$work/$1"
		mkdir -p "$work/$1.out"
		mv "$work/one" "$work/$1.out/$number"
		echo "$1: $name: $(($(date +%s) - start)) s"
	done <"$work/tests"
}

drivers_are_observed() {
	[ -s "$work/tests" ] || fail "there are no such tests"
	[ ! -e "$work/chosen" ] || [ "$(wc -l <"$work/tests")" -eq "$(wc -l <"$work/chosen")" ] ||
		fail "perf has not each of these tests: $(cat "$work/chosen")"
	unload
	observe in-tree >"$work/times"
	load
	watch_log
	observe rust >>"$work/times"
	quiet
	# Print the tests that take longest, and the parts of the branch test.
	awk '$NF == "s" && $(NF - 1) > 3' "$work/times"
	[ ! -e "$work/parts" ] || cat "$work/parts"
}

# Checks that no test fails under the module only. The states FAILED and late are failures; Ok, user
# and Skip are not.
no_new_failure() {
	perf test list 2>&1 | sed -nE 's/^ *([0-9.]+): *(.*[^ ]) *$/\1 \2/p' >"$work/names"
	awk -v in_tree="$work/in-tree" -v rust="$work/rust" -v names="$work/names" '
		function read_states(file, states,    line, part) {
			while ((getline line < file) > 0) { split(line, part, " "); states[part[1]] = part[2] }
		}
		function fails(state) { return state == "FAILED" || state == "late" || state == "" }
		BEGIN {
			read_states(in_tree, before)
			read_states(rust, after)
			while ((getline line < names) > 0) {
				number = name = line
				sub(/ .*/, "", number)
				sub(/^[^ ]* /, "", name)
				if (!(number in before) && !(number in after)) continue
				remark = ""
				if (fails(after[number]) && !fails(before[number])) {
					remark = "WORSE"
					worse++
				}
				else if (!fails(after[number]) && fails(before[number])) remark = "better"
				else if (after[number] ~ /Ok|user/ && before[number] == "Skip") remark = "better"
				printf "%-6s %-56s %-9s %-9s %s\n", number, substr(name, 1, 56), before[number], after[number], remark
				all++
				passed += after[number] == "Ok"
			}
			print all + 0 " tests, " passed + 0 " passed, " worse + 0 " worse"
			exit(worse > 0 || passed == 0)
		}
	' </dev/null >"$work/table"
	status=$?
	cat "$work/table"
	# Print the output of the tests that fail under the module only.
	if [ "$status" -ne 0 ]; then
		why "failures that the built-in driver does not give"
		sed -nE 's/^([0-9]+).* WORSE$/\1/p' "$work/table" | sort -u | while read -r number; do
			tail -n 40 "$work/rust.out/$number"
		done
	fi
	return "$status"
}

command -v perf >/dev/null || skip_all "there is no perf tool with tests"
choose "$@"

restore_at_end
run_tests drivers_are_observed no_new_failure

# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# KTAP (version 1) for test scripts, which source this file. The scripts of the selftests set $work
# to a folder and pass the names of their tests, which are functions, to `run_tests`.
# shellcheck disable=SC2154

SKIP=4
ktap_number=0 ktap_passed=0 ktap_failed=0 ktap_skipped=0

# result STATUS NAME [WHY]: print the line of a test; STATUS 0 is passed, 4 skipped, others failed.
result() {
	ktap_number=$((ktap_number + 1))
	case $1 in
	0)
		ktap_passed=$((ktap_passed + 1))
		echo "ok $ktap_number $2"
		;;
	"$SKIP")
		ktap_skipped=$((ktap_skipped + 1))
		echo "ok $ktap_number $2 # SKIP ${3-}"
		;;
	*)
		ktap_failed=$((ktap_failed + 1))
		echo "# ${3:-status $1}"
		echo "not ok $ktap_number $2"
		;;
	esac
}

# Print the totals and exit with 0 (passed), 1 (failed) or 4 (all skipped).
finish() {
	echo "# Totals: pass:$ktap_passed fail:$ktap_failed skip:$ktap_skipped"
	[ $ktap_failed -eq 0 ] || exit 1
	[ $ktap_passed -gt 0 ] || exit $SKIP
	exit 0
}

# run_tests FUNCTION...: run each function in a subshell, so that its changes to variables and the
# folder do not reach the next test. Its output becomes diagnostics.
run_tests() {
	echo "KTAP version 1"
	echo "1..$#"
	for test; do
		: >"$work/why"
		("$test") >"$work/out" 2>&1
		status=$?
		[ $status -eq $SKIP ] || sed 's/^/# /' "$work/out"
		result $status "$test" "$(cat "$work/why")"
	done
	finish
}

# skip_all WHY...: end the script before its first test.
skip_all() {
	echo "KTAP version 1"
	echo "1..0 # SKIP $*"
	exit $SKIP
}

# For use in a test: `why` stores an explanation; `fail` and `skip` end the test with one.
why() {
	echo "$*" >"$work/why"
}

fail() {
	why "$@"
	exit 1
}

skip() {
	why "$@"
	exit $SKIP
}

# must COMMAND...: run the command; the test fails if the command does.
must() {
	"$@" || fail "'$*' gave status $?"
}

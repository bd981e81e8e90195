# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# KTAP (version 1) for tests in shell, which source it. Those of the selftests give it
# a folder $work and name their tests, each a function, to `run_tests`.
# shellcheck disable=SC2154

SKIP=4
ktap_number=0 ktap_passed=0 ktap_failed=0 ktap_skipped=0

# result STATUS NAME [WHY]: the line of a test: 0 passed, 4 skipped, else failed.
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

# Totals, and exit with 0 passed, 1 failed, 4 all skipped.
finish() {
	echo "# Totals: pass:$ktap_passed fail:$ktap_failed skip:$ktap_skipped"
	[ $ktap_failed -eq 0 ] || exit 1
	[ $ktap_passed -gt 0 ] || exit $SKIP
	exit 0
}

# run_tests FUNCTION...: runs each in a shell of its own, so that what it changes or
# leaves behind ends with it. Its output becomes diagnostics.
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

# Ends the script before its first test.
skip_all() {
	echo "KTAP version 1"
	echo "1..0 # SKIP $*"
	exit $SKIP
}

# Within a test: an explanation, a failure and a skip with one.
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

# must COMMAND...: if it fails, so does the test.
must() {
	"$@" || fail "'$*' gave status $?"
}

# SPDX-License-Identifier: GPL-2.0
# KTAP output for shell tests, and what the tests of takeover share: source it.
# shellcheck shell=sh
#
#   plan N              before the first test
#   try NAME            runs the function NAME: status 0 passed, 4 skipped, else
#                       failed; its output becomes diagnostics; `why TEXT` explains
#   finish              totals, and exit with 0 passed, 1 failed, 4 all skipped
#   begin, finish_as_begun
#                       for tests that change the driver

# The programs lie beside the shell tests.
here=$(cd "$(dirname "$0")" && pwd)
export PATH="$here:$PATH"
work=$(mktemp -d /tmp/takeover.XXXXXX)
trap 'rm -rf "$work"' EXIT

MODULE=/lib/modules/ebb_pmu.ko
NAME=ebb_pmu
SKIP=4

# Whether the kernel checks itself, which takes several times as many instructions.
is_debug_kernel() {
	# With lockdep only.
	[ -e /proc/lockdep ]
}

# How far apart, in percent, the counts of the same work under two drivers may be.
# A debug kernel has more to do between whiles.
export apart=1
! is_debug_kernel || apart=5

tests=0 passed=0 failed=0 skipped=0

plan() {
	echo "KTAP version 1"
	echo "1..$1"
}

why() {
	echo "$*" >"$work/why"
}

try() {
	tests=$((tests + 1))
	: >"$work/why"
	# In a shell of its own: what it changes or leaves behind ends with it.
	("$1") >"$work/out" 2>&1
	status=$?
	if [ $status -ne $SKIP ]; then
		sed 's/^/# /' "$work/out"
	fi
	reason=$(cat "$work/why")
	case $status in
	0)
		passed=$((passed + 1))
		echo "ok $tests $1"
		;;
	"$SKIP")
		skipped=$((skipped + 1))
		echo "ok $tests $1 # SKIP $reason"
		;;
	*)
		failed=$((failed + 1))
		echo "# ${reason:-status $status}"
		echo "not ok $tests $1"
		;;
	esac
}

finish() {
	echo "# Totals: pass:$passed fail:$failed skip:$skipped"
	if [ $failed -gt 0 ]; then
		exit 1
	elif [ $passed -eq 0 ]; then
		exit $SKIP
	fi
	exit 0
}

# A failed step ends its test: the command and the reason.
must() {
	"$@" || {
		status=$?
		why "'$*' gave status $status"
		exit 1
	}
}

loaded() {
	grep -q "^$NAME " /proc/modules
}

load() {
	loaded || must insmod "$MODULE"
}

unload() {
	! loaded || must rmmod "$NAME"
}

# Ends the script before its first test.
skip_all() {
	echo "KTAP version 1"
	echo "1..0 # SKIP $*"
	exit $SKIP
}

# Skips all where there is no module; remembers which driver has the PMU.
begin() {
	[ -e "$MODULE" ] || skip_all "there is no $MODULE"
	at_start=unload
	! loaded || at_start=load
}

# As `finish`, with the driver that had the PMU when it began.
finish_as_begun() {
	$at_start
	finish
}

# Lines that the kernel printed since the mark.
mark() {
	dmesg >"$work/dmesg.before"
}

printed() {
	dmesg | tail -n +"$(($(wc -l <"$work/dmesg.before") + 1))"
}

# No report of a bug since the mark.
quiet() {
	if printed | grep -E 'WARNING|BUG|Oops|Call Trace|possible|suspicious'; then
		why "the kernel complained"
		exit 1
	fi
}

# Waits, at most 20 s, until a file has a line.
wait_for_line() {
	tries=0
	while ! [ -s "$1" ]; do
		tries=$((tries + 1))
		if [ $tries -gt 200 ]; then
			why "nothing came to $1"
			exit 1
		fi
		sleep 0.1
	done
}

# Starts "pmu_tool $1" in the background; it ends with `stop_tool`.
start_tool() {
	mkfifo "$work/stdin.$1"
	pmu_tool "$1" <"$work/stdin.$1" >"$work/out.$1" 2>&1 &
	tool=$!
	# As long as this descriptor is open, its stdin does not end.
	exec 9>"$work/stdin.$1"
}

# Its output is in $work/out.$1.
stop_tool() {
	exec 9>&-
	wait "$tool" || {
		why "pmu_tool $1: $(cat "$work/out.$1")"
		exit 1
	}
	rm "$work/stdin.$1"
}

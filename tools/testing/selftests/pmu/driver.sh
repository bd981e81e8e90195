# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# Functions for shell tests that change the driver of the PMU. The tests source this file.

# The programs are in the folder of the shell tests. In the guest, ktap.sh is there, too.
programs=$(cd "$(dirname "$0")" && pwd)
export PATH="$programs:$PATH"
work=$(mktemp -d /tmp/selftest.XXXXXX)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tools/testing/selftests/ktap/ktap.sh
. "$programs/ktap.sh"

MODULE=/lib/modules/ebb_pmu.ko
NAME=ebb_pmu

# Succeeds on a debug kernel, which takes several times as many instructions.
is_debug_kernel() {
	# Only debug kernels have lockdep.
	[ -e /proc/lockdep ]
}

# Largest difference, in per cent, between the counts of the same work under two drivers. A debug
# kernel does more work in between.
export apart=1
! is_debug_kernel || apart=5

loaded() {
	grep -q "^$NAME " /proc/modules
}

load() {
	loaded || must insmod "$MODULE"
}

unload() {
	! loaded || must rmmod "$NAME"
}

# For tests that change the driver: skips all tests where there is no module, and restores the
# present driver at the end.
restore_at_end() {
	[ -e "$MODULE" ] || skip_all "there is no $MODULE"
	at_start=unload
	! loaded || at_start=load
	trap '$at_start; rm -rf "$work"' EXIT
}

# under_both FUNCTION: calls the function with `in-tree` under the built-in driver, and with `rust`
# under the module.
under_both() {
	unload
	"$1" in-tree
	load
	"$1" rust
}

# Starts to watch the kernel log; `printed` prints the lines since then.
watch_log() {
	dmesg >"$work/dmesg.before"
}

printed() {
	dmesg | tail -n +"$(($(wc -l <"$work/dmesg.before") + 1))"
}

# Checks that the kernel has reported no bug since watch_log.
quiet() {
	! printed | grep -E 'WARNING|BUG|Oops|Call Trace|possible|suspicious' ||
		fail "the kernel complained"
}

# start_tool COMMAND: starts "pmu_tool COMMAND" in the background and waits, at most 20 s, until it
# is ready. `stop_tool` ends it.
start_tool() {
	# Remove the previous output: it says "ready", too.
	rm -f "$work/stdin" "$work/tool"
	mkfifo "$work/stdin"
	pmu_tool "$1" <"$work/stdin" >"$work/tool" 2>&1 &
	tool=$!
	# The tool's stdin does not end while this descriptor is open.
	exec 9>"$work/stdin"
	tries=0
	until [ -s "$work/tool" ]; do
		tries=$((tries + 1))
		[ $tries -le 200 ] || fail "pmu_tool $1 is not ready"
		sleep 0.1
	done
}

# stop_tool [TEXT]: ends the tool, whose output is then in $work/tool, and checks that it contains
# TEXT.
stop_tool() {
	exec 9>&-
	wait "$tool" || fail "pmu_tool: $(cat "$work/tool")"
	grep -q "${1-}" "$work/tool" || fail "not $1: $(cat "$work/tool")"
}

# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# What the shell tests share that change the driver of the PMU, beside KTAP: source it.

# The programs lie beside the shell tests, and in the guest so does ktap.sh.
programs=$(cd "$(dirname "$0")" && pwd)
export PATH="$programs:$PATH"
work=$(mktemp -d /tmp/selftest.XXXXXX)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tools/testing/selftests/ktap/ktap.sh
. "$programs/ktap.sh"

MODULE=/lib/modules/ebb_pmu.ko
NAME=ebb_pmu

# Whether the kernel checks itself, which takes several times as many instructions.
is_debug_kernel() {
	# With lockdep only.
	[ -e /proc/lockdep ]
}

# How far apart, in percent, the counts of the same work under two drivers may be.
# A debug kernel has more to do between whiles.
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

# For tests that change the driver: skips all where there is no module; the driver that
# has the PMU now has it again at the end.
restore_at_end() {
	[ -e "$MODULE" ] || skip_all "there is no $MODULE"
	at_start=unload
	! loaded || at_start=load
	trap '$at_start; rm -rf "$work"' EXIT
}

# under_both FUNCTION: calls it with `in-tree` and with `rust` under that driver.
under_both() {
	unload
	"$1" in-tree
	load
	"$1" rust
}

# Lines that the kernel prints from now on.
watch_log() {
	dmesg >"$work/dmesg.before"
}

printed() {
	dmesg | tail -n +"$(($(wc -l <"$work/dmesg.before") + 1))"
}

# No report of a bug since watch_log.
quiet() {
	! printed | grep -E 'WARNING|BUG|Oops|Call Trace|possible|suspicious' ||
		fail "the kernel complained"
}

# start_tool COMMAND: has "pmu_tool COMMAND" run in the background until `stop_tool`,
# and waits, at most 20 s, until it is ready.
start_tool() {
	# The one before was ready, too, as its output says until this one is on its way.
	rm -f "$work/stdin" "$work/tool"
	mkfifo "$work/stdin"
	pmu_tool "$1" <"$work/stdin" >"$work/tool" 2>&1 &
	tool=$!
	# As long as this descriptor is open, its stdin does not end.
	exec 9>"$work/stdin"
	tries=0
	until [ -s "$work/tool" ]; do
		tries=$((tries + 1))
		[ $tries -le 200 ] || fail "pmu_tool $1 is not ready"
		sleep 0.1
	done
}

# stop_tool [TEXT]: its output is in $work/tool and has this text.
stop_tool() {
	exec 9>&-
	wait "$tool" || fail "pmu_tool: $(cat "$work/tool")"
	grep -q "${1-}" "$work/tool" || fail "not $1: $(cat "$work/tool")"
}

#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# The report of `check_here.sh --quick` is complete, has no name of the machine or of a user, and shows
# which test failed. The machine's settings and its module are afterwards as before.
#
# Runs as root in a guest, where no module is inserted.

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"

# The name of the machine while the tests run.
HOST=no-such-host-name
hostname "$HOST"
# The name of the user who calls sudo. Words that contain it are not replaced.
CALLER=nosuchuser
# The folder with the homes of users. Names in it are replaced.
HOMES=/home
report=$work/report
settings='/proc/sys/kernel/perf_event_paranoid /proc/sys/kernel/perf_cpu_time_max_percent
	/proc/sys/kernel/perf_event_max_sample_rate /proc/sys/kernel/pid_max'

# Stands for the kernel's own selftests, of which one fails, prints names and changes a setting.
kernels_own() {
	mkdir -p "$work/own"
	echo 'echo "skip: not here"' >"$work/own/skipping_test"
	echo 'echo "[PASS]"' >"$work/own/passing_test"
	cat >"$work/own/failing_test" <<-END
		echo 20000 >/proc/sys/kernel/pid_max
		echo "cause of the failure, on \$(uname -n) in $programs"
		echo "paths: $HOMES/other-user/file /srv/$CALLER/file $work/own/file $work/link/file ${CALLER}s"
		exit 1
	END
	for own in "$work/own"/*_test; do
		sed -i '1i #!/bin/sh' "$own"
		chmod +x "$own"
	done
}

# Fails unless the report has a line that is equal to each argument.
lines() {
	for line; do
		grep -qxF -e "$line" "$report" || fail "there is no line '$line'"
	done
}

# Fails unless the report has a line for each of these patterns.
matches() {
	for pattern; do
		grep -qE -e "$pattern" "$report" || fail "no line matches '$pattern'"
	done
}

# Prints the lines of a part of the report.
part() {
	awk -v heading="== $1" '/^== / { inside = $0 == heading; next } inside' "$report"
}

under_both_drivers() {
	unload
	kernels_own
	# shellcheck disable=SC2086 # a word for each file
	before=$(cat $settings)
	ln -s own "$work/link"
	! SUDO_USER=$CALLER check_here.sh --quick --module "$MODULE" --report "$report" \
		--kernel-selftests "$work/link" ||
		fail "the failing test has no effect on the exit status"
	cat "$report"
	# shellcheck disable=SC2086
	[ "$before" = "$(cat $settings)" ] || fail "the settings were $before"
	! loaded || fail "the module is still inserted"
	lines '== machine' '== module: parameters' '== end: 1 parts failed under the module'
	matches '^revision: .*pvr' '^kernel: [0-9]' '^firmware kind: ' '^mode: (full|ebb)$'
	for driver in built-in module; do
		for title in 'pmu suite' 'EBB suite' 'EBBs of marked events' "the kernel's EBB selftests" costs \
			'kernel log'; do
			lines "== $driver: $title"
		done
		part "$driver: costs" | grep -qE '^cost nanoseconds [0-9.]+ read$' || fail "costs of $driver"
		part "$driver: the kernel's EBB selftests" >"$work/part"
		grep -qx 'tests pass:1 fail:1 skip:1' "$work/part" || fail "$(cat "$work/part")"
		grep -qx 'skipped: skipping_test # SKIP skip: not here' "$work/part" || fail "$(cat "$work/part")"
		grep -qx '# cause of the failure, on HOST in \.' "$work/part" || fail "$(cat "$work/part")"
		grep -qx "# paths: $HOMES/USER/file /srv/USER/file \./file \./file ${CALLER}s" "$work/part" ||
			fail "$(cat "$work/part")"
	done
	part 'module: kernel log' | grep -qE 'ebb_pmu: .*mode (full|ebb)' || fail "no line of the insertion"
	lines '== module: removal' '== module: kernel log of the removal'
	[ -z "$(part 'module: removal')" ] || fail "$(part 'module: removal')"
	! grep '^CONFIG_MODULE_SIG.*"' "$report" || fail "the report names keys"
	[ "$(part 'module: questions' | grep -c '^question: ')" = 6 ] || fail "$(part 'module: questions')"
	part 'module: EBB suite' | grep -qx 'exit status 0' || fail "$(part 'module: EBB suite')"
	! part 'module: questions' | grep 'no answer' || fail "a question has no answer"
	! grep -e "$HOST" -e "$programs" "$report" || fail "the machine's names are in the report"
}

with_the_module_inserted() {
	load
	must check_here.sh --quick --report "$report" --kernel-selftests "$work/none"
	loaded || fail "the module was removed"
	matches '^The module was inserted before'
	lines '== module: questions' '== end: 0 parts failed under the module'
	! grep '^== module: removal' "$report" || fail "the module was removed"
	! grep '^== built-in' "$report" || fail "the built-in driver was tested"
	unload
}

# A module that cannot be inserted is a failure, with its reason. So is a kernel log without the
# script's mark.
without_a_module() {
	unload
	echo 'no module' >"$work/broken.ko"
	kmsg=/proc/sys/kernel/printk_devkmsg
	before=$(cat "$kmsg")
	# Nothing that programs write to the log gets there.
	echo off >"$kmsg"
	! check_here.sh --quick --module "$work/broken.ko" --report "$report" || fail "it succeeded"
	echo "$before" >"$kmsg"
	lines '== module: not inserted' '== end: 2 parts failed under the module'
	matches '^WARNING: the log has lost'
}

# The script ends with one line where it cannot run. (scripts/tests/test-make: on another machine.)
refusals() {
	refused 'needs root' su nobody -c "sh $programs/check_here.sh"
	refused 'no test programs' check_here.sh --programs "$work"
	refused 'no option' check_here.sh --slow
}

# refused WHY COMMAND...
refused() {
	why=$1
	shift
	"$@" >"$work/said" 2>&1
	status=$?
	[ "$status" -eq 2 ] || fail "exit status $status: $*"
	[ "$(wc -l <"$work/said")" = 1 ] || fail "not one line: $(cat "$work/said")"
	grep -q "$why" "$work/said" || fail "not '$why': $(cat "$work/said")"
}

restore_at_end
run_tests under_both_drivers with_the_module_inserted without_a_module refusals

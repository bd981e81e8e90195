#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Runs the tests on this POWER machine, without an emulator, under the built-in driver and under the
# module, measures what each costs, asks what only hardware can answer, and writes one report.
#
# usage: check_here.sh [OPTION]...
#   --quick                  a few of all tests and paths, in about a minute
#   --module FILE            the module to insert (default: ebb_pmu.ko beside this script, or else
#                            the one that modprobe finds)
#   --programs DIR           the test programs (default: beside this script)
#   --kernel-selftests DIR   the kernel's own EBB selftests, built (default: $KERNEL_SELFTESTS, or
#                            kernel-selftests in the folder of the programs)
#   --report FILE            (default: ebb-pmu-report.txt)
#
# Needs root. If the module is inserted already, only the module is tested, and it stays.
# Exit status: 0 no test failed under the module, 1 some did or it could not be inserted, 2 wrong
# use. In each case but the last the report is complete.

programs=$(cd "$(dirname "$0")" && pwd)
module='' quick='' report=ebb-pmu-report.txt
kernel_selftests=${KERNEL_SELFTESTS-}

die() {
	echo "check_here: $*" >&2
	exit 2
}

while [ $# -gt 0 ]; do
	case $1 in
	--quick)
		quick=yes
		shift
		continue
		;;
	--module | --programs | --kernel-selftests | --report) [ $# -gt 1 ] || die "$1 needs a value" ;;
	*) die "there is no option '$1'" ;;
	esac
	case $1 in
	--module) module=$2 ;;
	--programs) programs=$(cd "$2" 2>/dev/null && pwd || echo "$2") ;;
	--kernel-selftests) kernel_selftests=$(cd "$2" 2>/dev/null && pwd || echo "$2") ;;
	--report) report=$2 ;;
	esac
	shift 2
done

[ "$(uname -m)" = ppc64le ] ||
	die "this machine is $(uname -m): the tests need 64-bit little-endian POWER (ppc64le)"
[ "$(id -u)" -eq 0 ] || die "needs root, to insert the module and to count the kernel's work"
[ -x "$programs/run_ebb_selftests" ] ||
	die "there are no test programs in $programs (\`make here-archive\` on an amd64 machine packs them)"
[ -z "$module" ] || [ -f "$module" ] || die "there is no module '$module'"
[ "$module" ] || ! [ -f "$programs/ebb_pmu.ko" ] || module=$programs/ebb_pmu.ko
[ -z "$module" ] || module=$(cd "$(dirname "$module")" && pwd)/$(basename "$module")
[ "$kernel_selftests" ] || kernel_selftests=$programs/kernel-selftests
: >"$report" || die "'$report' cannot be written"

# An empty list stands for everything.
ebb_tests='' pmu_tests='' paths=''
if [ "$quick" ]; then
	ebb_tests='ebb_attributes ebb_close'
	pmu_tests='pmu_read'
	paths='read'
fi

work=$(mktemp -d) || exit 1
failed=0 inserted=''

loaded() {
	grep -q '^ebb_pmu ' /proc/modules
}

# The tests change these settings.
settings=/proc/sys/kernel
paranoid=$(cat $settings/perf_event_paranoid)
share=$(cat $settings/perf_cpu_time_max_percent)
rate=$(cat $settings/perf_event_max_sample_rate)
pid_max=$(cat $settings/pid_max)
# A line for each CPU that can go offline: the file, a colon, and 1 if the CPU is online.
grep -H . /sys/devices/system/cpu/cpu[0-9]*/online >"$work/online" 2>/dev/null

restore() {
	echo "$paranoid" >$settings/perf_event_paranoid
	# The rate cannot be changed while the share is 0 or 100.
	echo 99 >$settings/perf_cpu_time_max_percent
	echo "$rate" >$settings/perf_event_max_sample_rate
	echo "$share" >$settings/perf_cpu_time_max_percent
	echo "$pid_max" >$settings/pid_max
	while IFS=: read -r file state; do
		[ "$(cat "$file")" = "$state" ] || echo "$state" >"$file"
	done <"$work/online"
	[ -z "$inserted" ] || ! loaded || rmmod ebb_pmu
	rm -rf "$work"
}
trap restore EXIT
trap 'exit 1' INT TERM HUP
# Debian's kernels refuse events to users at boot, and some tests act as a user.
[ "$paranoid" -le 2 ] || echo 2 >$settings/perf_event_paranoid
# A test may hold many events, each a file descriptor.
# shellcheck disable=SC3045 # each shell with /bin/sh as its name has it
ulimit -n 65536 2>/dev/null

literal() {
	printf '%s' "$1" | sed 's/[][\.*^$/]/\\&/g'
}

# Prints the folders of this run, by each of their paths, the longest first.
folders() {
	for folder in "$programs" "$work" "$kernel_selftests" "$(dirname "$module")" "$(dirname "$report")"; do
		echo "$folder"
		(cd "$folder" 2>/dev/null && pwd && pwd -P)
	done | grep '/.' | awk '{ print length($0), $0 }' | sort -rn | cut -d ' ' -f 2-
}

# Prints the commands for sed that replace names of folders, users and the machine.
names() {
	folders | while read -r folder; do
		printf 's/%s/./g\n' "$(literal "$folder")"
	done
	printf '%s\n' 's,\(/home/\)[^/ ]*,\1USER,g'
	[ "${SUDO_USER:-root}" = root ] || printf 's/\\b%s\\b/USER/g\n' "$(literal "$SUDO_USER")"
	name=$(uname -n)
	for host in "$name" "${name%%.*}"; do
		[ -z "$host" ] || printf 's/\\b%s\\b/HOST/g\n' "$(literal "$host")"
	done
}
names >"$work/names.sed"

# Adds standard input to the report, without the names of the machine, its folders and its users.
hide() {
	sed -f "$work/names.sed" >>"$report"
}

# heading TEXT: begins a part of the report. The parts before it survive a crash of the machine.
heading() {
	sync
	echo "== $*"
	echo "== $*" | hide
}

say() {
	echo "$*" | hide
}

# Prints what makes this machine's results differ from others'.
machine() {
	echo "kernel: $(uname -r)"
	# One processor stands for all; the lines after the last processor are of the machine.
	sed -n -e 's/[[:space:]]*:/:/' -e '/^\(cpu\|revision\|timebase\|platform\|model\|machine\|firmware\|MMU\):/p' \
		/proc/cpuinfo | awk '!seen[$0]++'
	echo "CPUs online: $(cat /sys/devices/system/cpu/online), SMT $(cat /sys/devices/system/cpu/smt/control 2>/dev/null)"
	tree=/proc/device-tree
	if [ -e $tree/ibm,opal ]; then
		echo "firmware kind: OPAL (bare metal)"
	elif [ -e $tree/hypervisor ]; then
		echo "firmware kind: hypervisor $(tr '\0' ' ' <$tree/hypervisor/compatible)"
	else
		echo "firmware kind: RTAS, as under PowerVM and in QEMU"
	fi
	grep -s '^shared_processor_mode=' /proc/ppc64/lparcfg
	echo "PMU: $(cat /sys/bus/event_source/devices/cpu/caps/pmu_name 2>/dev/null || echo none)"
	options='PERF_EVENTS|RUST|SMP|NR_CPUS|HZ|PPC_[0-9]*K_PAGES|PREEMPT[A-Z_]*|NO_HZ[A-Z_]*|PMU_SYSFS|KVM_BOOK3S_[A-Z_]*'
	options="$options|KALLSYMS|TRACEPOINTS|MODVERSIONS|MODULE_SIG[A-Z_]*|CC_IS_[A-Z]*|LOCKDEP|DEBUG_INFO_BTF|RADIX_MMU"
	for config in "/boot/config-$(uname -r)" "/lib/modules/$(uname -r)/build/.config" /proc/config.gz; do
		[ -r "$config" ] || continue
		case $config in *.gz) zcat "$config" ;; *) cat "$config" ;; esac |
			grep -E "^(# )?CONFIG_($options)[= ]" | grep -v '^CONFIG_MODULE_SIG[A-Z_]*="'
		return
	done
	echo "configuration: not found"
}

# summary FILE: prints the totals of KTAP, why tests were skipped, and what failed programs printed.
# Fails if a test failed or none ran.
summary() {
	awk '
	function count(line, of) {
		if (line ~ /# SKIP/) skip[of]++
		else if (line ~ /^ *not ok/) fail[of]++
		else pass[of]++
	}
	function totals(of) {
		return sprintf("pass:%d fail:%d skip:%d", pass[of], fail[of], skip[of])
	}
	/^# Subtest: / { program = $3 }
	/^  (not )?ok / {
		count($0, "tests")
		if ($0 ~ /# SKIP/) skips = skips "skipped: " program ":" substr($0, index($0, $3)) "\n"
	}
	/^(not )?ok / {
		count($0, "programs")
		if (/# SKIP/ && !program) skips = skips "skipped: " substr($0, index($0, $3)) "\n"
		if (/^not/) output = output lines $0 "\n"
		lines = ""; kept = 0
		next
	}
	!/^(KTAP|1\.\.)/ && kept++ < 200 { lines = lines $0 "\n" }
	END {
		if (program) print "programs " totals("programs") ", their tests " totals("tests")
		else print "tests " totals("programs")
		# A runner that was killed has left more lines.
		printf "%s%s%s", skips, output, (pass["programs"] || skip["programs"]) ? "" : lines
		exit fail["programs"] || fail["tests"] || !(pass["programs"] || skip["programs"])
	}' "$1"
}

# part NAME COMMAND...: runs a command that prints KTAP, and reports its results.
part() {
	heading "$driver: $1"
	shift
	"$@" >"$work/ktap" 2>&1
	status=$?
	summary "$work/ktap" >"$work/summary"
	summed=$?
	{
		echo "exit status $status"
		cat "$work/summary"
	} | hide
	case $status$summed in
	00 | 40) ;;
	*) [ "$driver" = built-in ] || failed=$((failed + 1)) ;;
	esac
}

# printed NAME COMMAND...: runs a command whose output is reported as it is.
printed() {
	heading "$driver: $1"
	shift
	timeout -s KILL 1800 "$@" >"$work/out" 2>&1
	status=$?
	hide <"$work/out"
	[ $status -eq 0 ] || say "exit status $status"
}

# Runs the kernel's own EBB selftests, and prints KTAP.
kernels_own() {
	echo "KTAP version 1"
	number=0
	for program in "$kernel_selftests"/*_test; do
		number=$((number + 1)) title=$(basename "$program")
		(cd "$kernel_selftests" && timeout -s KILL 120 "./$title") >"$work/out" 2>&1
		status=$?
		# The kernel's harness exits with 0 for a test that was skipped, and prints that.
		if [ $status -eq 4 ] || { [ $status -eq 0 ] && grep -q '^skip: ' "$work/out"; }; then
			echo "ok $number $title # SKIP $(grep '^skip: ' "$work/out")"
		elif [ $status -eq 0 ]; then
			echo "ok $number $title"
		else
			sed 's/^/# /' "$work/out"
			echo "# exit status $status"
			echo "not ok $number $title"
		fi
	done
	echo "1..$number"
}

# begin_log NAME: writes a mark to the kernel's log, where the next kernel_log begins.
begin_log() {
	mark="check_here: $1 $$"
	echo "$mark" >/dev/kmsg
}

# Runs everything under the present driver, whose name is $driver. The caller begins the log.
all_parts() {
	# The built-in driver has the regular events in the ebb mode, too.
	if [ "$driver" = built-in ] || [ "$mode" != ebb ]; then
		# shellcheck disable=SC2086 # a word for each name
		part "pmu suite" "$programs/run_pmu_selftests" $pmu_tests
	fi
	# shellcheck disable=SC2086
	part "EBB suite" "$programs/run_ebb_selftests" $ebb_tests
	part "EBBs of marked events" "$programs/ebb_marked"
	if [ -d "$kernel_selftests" ]; then
		part "the kernel's EBB selftests" kernels_own
	else
		heading "$driver: the kernel's EBB selftests"
		say "not found: --kernel-selftests names their folder"
	fi
	# shellcheck disable=SC2086 # a word for each name
	printed costs "$programs/pmu_paths" --native $paths
	# In QEMU an alert under EBE raises a PM interrupt, of which the built-in driver knows nothing.
	if [ "$driver" = module ] || ! grep -q 'emulated by qemu' /proc/cpuinfo; then
		printed questions "$programs/ebb_hardware"
		[ "$quick" ] || printed demo "$programs/ebb-demo"
	fi
	kernel_log
}

# Removes the module, and reports what the kernel logs. The module may be in use for a moment after
# its last user was killed.
remove() {
	heading "module: removal"
	begin_log removal
	tries=1
	until rmmod ebb_pmu >"$work/out" 2>&1; do
		if [ $tries -eq 10 ]; then
			hide <"$work/out"
			failed=$((failed + 1))
			break
		fi
		tries=$((tries + 1))
		sleep 1
	done
	kernel_log " of the removal"
}

# kernel_log [TEXT]: reports the lines of the kernel's log since $mark that are about the module or
# about faults.
kernel_log() {
	heading "$driver: kernel log${1-}"
	dmesg | sed -n "/$mark\$/,\$p" >"$work/since"
	[ -s "$work/since" ] || {
		echo "WARNING: the log has lost check_here's mark, so these lines may be older"
		dmesg
	} >"$work/since"
	grep -E 'ebb_pmu: |WARNING|BUG|Oops|Call Trace|lockup|rcu.*stall' "$work/since" >"$work/log"
	head -n 200 "$work/log" | hide
	! grep -qvE 'ebb_pmu: ' "$work/log" || [ "$driver" = built-in ] || failed=$((failed + 1))
}

echo "ebb-pmu report, version 1${quick:+, quick}" >>"$report"
heading machine
machine 2>&1 | hide

driver=built-in mode=''
if loaded; then
	say "The module was inserted before, so the built-in driver is not tested."
	begin_log module
else
	begin_log built-in
	all_parts
	driver=module
	begin_log module
	# Set before the insertion: an interruption in between must not leave the module.
	inserted=yes
	if [ "$module" ]; then insmod "$module"; else modprobe ebb_pmu; fi >"$work/insmod" 2>&1
	if ! loaded; then
		heading "module: not inserted"
		hide <"$work/insmod"
		kernel_log
		failed=$((failed + 1))
	fi
fi
if loaded; then
	driver=module
	mode=$(cat /sys/module/ebb_pmu/parameters/mode 2>/dev/null)
	heading "module: parameters"
	for parameter in /sys/module/ebb_pmu/parameters/* /sys/module/ebb_pmu/srcversion; do
		say "$(basename "$parameter"): $(cat "$parameter" 2>/dev/null)"
	done
	all_parts
	[ -z "$inserted" ] || remove
fi

heading "end: $failed parts failed under the module"
echo "The report is $report"
[ $failed -eq 0 ]

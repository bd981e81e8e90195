# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# Functions for the tests of ebbprof that record ebbprof_work, whose instructions are known. The
# tests source this file.

# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"

# A prime, so that the samples come at all places in a pass of about 10000 instructions.
PERIOD=1009

# Tolerances, as shares of the work. `less` and `more` are for numbers of samples, and `around` is
# for shares of functions. QEMU counts the kernel's work, too, some of which delays a program's last
# sample. And in QEMU, an alert that comes while a thread begins, with EBBs off, is up to 640 us
# late (see rust/driver/emulator/README.md). This happens once in a few programs, and there are no
# samples in that time. `late` is the number of passes that a thread can do in 640 us. A debug
# kernel takes several times as long.
less=0.01 late=0 more=0 around=0.03
! grep -q 'emulated by qemu' /proc/cpuinfo || less=0.1 late=64 around=0.05
! is_debug_kernel || less=0.15 late=640 more=0.2 around=0.2

# record STATUS OPTION... WAY PASSES [COUNT]: records ebbprof_work and checks its exit status.
record() {
	expected=$1
	shift
	status=0
	ebbprof record -c "$PERIOD" -o "$work/data" "$@" 2>"$work/said" || status=$?
	cat "$work/said"
	[ "$status" -eq "$expected" ] || fail "status $status"
}

# runs NAME SECONDS: waits until a program of this name runs, and sets `program` to its process ID.
# Looks up to a hundred times, SECONDS apart.
runs() {
	tries=0
	# shellcheck disable=SC2034 # for the callers
	until program=$(pidof "$1"); do
		tries=$((tries + 1))
		[ "$tries" -le 100 ] || fail "the program does not run"
		sleep "$2"
	done
}

# fresh_memory FILE: makes the file like the memory that ebbprof shares with programs, with all
# slots free.
fresh_memory() {
	printf 'ebbprof3\0\0\0\0\0\0\0\0\0\20\0\0\0\0\0\0' >"$1"
	# Slots of 128 KiB after a head of 64 KiB.
	truncate -s $(((64 + 1024 * 128) * 1024)) "$1"
}

# said_samples: prints the numbers of samples and lost samples of the last record.
said_samples() {
	sed -n 's/^ebbprof: \([0-9]*\) samples of.* \([0-9]*\) lost.*/\1 \2/p' "$work/said"
}

# accounted PASSES [MOST [THREADS]]: checks that the samples and the lost samples together account
# for the instructions of this number of passes, done by THREADS threads. MOST is the upper limit,
# with the code around the work.
accounted() {
	said_samples | awk -v passes="$1" -v period="$PERIOD" -v most="${2-1.1}" -v threads="${3-1}" \
		-v less="$less" -v late="$late" -v more="$more" '
		{ all = ($1 + $2) * period / 10000 / passes }
		END {
			missing = 0.01 + late * threads / passes
			if (missing > less) missing = less
			print "accounted for", all
			exit(!(all >= 1 - missing && all < most + more))
		}
	' || fail "samples are missing, or too many"
}

# shares [FUNCTION]: checks the shares of the program's three functions, with FUNCTION in place of
# three_tenths.
shares() {
	must ebbprof report "$work/data" -n 10 -o "$work/report"
	cat "$work/report"
	awk -v second="${1-three_tenths ebbprof_work}" -v around="$around" '
		NR == 1 { all = $1 }
		$5 ~ /^[0-9]+$/ { share = $1 / 100; sub(/^.*[0-9]%  +[0-9]+  /, ""); gsub(/  +/, " "); shares[$0] = share }
		function compare(function_and_object, wanted) {
			off = shares[function_and_object] - wanted
			# The code around the work has a share, too.
			if (off < 0) off = off > -around * wanted ? 0 : off + around * wanted
			# Six standard deviations: samples at equal distances are not random ones.
			if (off * off > 36 * wanted * (1 - wanted) / all) {
				print function_and_object, "is", off, "off"
				bad = 1
			}
		}
		END {
			compare("half ebbprof_work", 0.5)
			compare(second, 0.3)
			compare("fifth libebbprof_work.so", 0.2)
			exit(bad)
		}
	' "$work/report" || fail "not the program's shares"
}

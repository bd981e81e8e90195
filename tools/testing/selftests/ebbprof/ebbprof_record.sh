# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# What the tests of ebbprof share that record ebbprof_work, whose instructions are known: source it.

# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"

# A prime, so that the samples fall on all places of a pass of some 10000 instructions.
PERIOD=1009

# QEMU counts the kernel too, with what a program's last sample waits for there. And an alert that comes
# while a thread begins, with EBBs off, is late by up to 640 us there (see rust/driver/emulator/README.md), in which
# there are no samples: once in a few programs. How much less and more that may be than the work itself, as
# shares of it where it is short or several threads do it, and how many passes a thread can do in 640 us;
# what many runs together have at least. A debug kernel takes several times as long.
less=0.01 late=0 more=0 around=0.03 together=0.99
! grep -q 'emulated by qemu' /proc/cpuinfo || less=0.1 late=64 together=1 around=0.05
! is_debug_kernel || less=0.15 late=640 more=0.2 around=0.2 together=0.9

# record STATUS OPTION... WAY PASSES [COUNT]: records ebbprof_work, which ends with this status.
record() {
	expected=$1
	shift
	status=0
	ebbprof record -c "$PERIOD" -o "$work/data" "$@" 2>"$work/said" || status=$?
	cat "$work/said"
	[ "$status" -eq "$expected" ] || fail "status $status"
}

# runs NAME SECONDS: waits, for a hundred times so long, until the program of this name runs, and
# sets program, its number.
runs() {
	tries=0
	# shellcheck disable=SC2034 # for the callers
	until program=$(pidof "$1"); do
		tries=$((tries + 1))
		[ "$tries" -le 100 ] || fail "the program does not run"
		sleep "$2"
	done
}

# fresh_memory FILE: makes it what ebbprof shares with programs, before one has taken a slot.
fresh_memory() {
	printf 'ebbprof3\0\0\0\0\0\0\0\0\0\20\0\0\0\0\0\0' >"$1"
	# Slots of 128 KiB behind a head of 64.
	truncate -s $(((64 + 1024 * 128) * 1024)) "$1"
}

# said_samples: how many samples, and lost ones, the last record tells of.
said_samples() {
	sed -n 's/^ebbprof: \([0-9]*\) samples of.* \([0-9]*\) lost.*/\1 \2/p' "$work/said"
}

# accounted PASSES [MOST [THREADS]]: as many samples, with those lost, as so many passes of this number of
# threads have instructions, and so many times more for what surrounds them. Leaves the share in
# $work/accounted, behind those of earlier runs.
accounted() {
	status=0
	said_samples | awk -v passes="$1" -v period="$PERIOD" -v most="${2-1.1}" -v threads="${3-1}" \
		-v less="$less" -v late="$late" -v more="$more" '
		{ all = ($1 + $2) * period / 10000 / passes }
		END {
			missing = 0.01 + late * threads / passes
			if (missing > less) missing = less
			print "accounted for", all
			exit(!(all >= 1 - missing && all < most + more))
		}
	' >"$work/share" || status=$?
	tee -a "$work/accounted" <"$work/share"
	[ "$status" -eq 0 ] || fail "samples are missing, or too many"
}

# accounted_together: the runs in $work/accounted have as many samples, on average, as many runs have.
accounted_together() {
	awk -v least="$together" '
		{ all += $3 }
		END { print "on average", all / NR; exit(all / NR < least) }
	' "$work/accounted" || fail "samples are missing in many runs"
}

# shares [FUNCTION]: of the program's three functions, with this one in place of three_tenths; a
# sample's share may be 4 sigma off.
shares() {
	must ebbprof report "$work/data" -n 10 -o "$work/report"
	cat "$work/report"
	awk -v second="${1-three_tenths ebbprof_work}" -v around="$around" '
		NR == 1 { all = $1 }
		$5 ~ /^[0-9]+$/ { share = $1 / 100; sub(/^.*[0-9]%  +[0-9]+  /, ""); gsub(/  +/, " "); shares[$0] = share }
		function compare(function_and_object, wanted) {
			off = shares[function_and_object] - wanted
			# What surrounds the work has a share, too.
			if (off < 0) off = off > -around * wanted ? 0 : off + around * wanted
			# Six standard deviations: samples at equal distances are no random ones.
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

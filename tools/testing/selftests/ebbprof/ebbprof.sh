#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# ebbprof on programs with known instructions: its samples and reports, what perf reads in its
# files, and what it refuses.
#
# Needs shared libraries and the perf tool in the guest (`scripts/vm run --libs --perf`).

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/ebbprof/ebbprof_record.sh
. "$(dirname "$0")/ebbprof_record.sh"

# In QEMU, all runs with the same period are alike. With some periods, a driver lost every alert
# that came while it checked the previous one.
shares_are_the_programs() {
	for PERIOD in 1009 1021 1049 1087 1123; do
		record 0 ebbprof_work plain 1000
		accounted 1000
		shares
	done
}

# An event can be given as a code with its counter, as a code without one, and by its name in sysfs.
events_have_names() {
	for event in 0x3001e r1e cpu-cycles; do
		record 0 -e "$event" ebbprof_work plain 500
		accounted 500
		must ebbprof report "$work/data" -o "$work/report"
		must grep -q "samples of $event:u" "$work/report"
	done
}

# perf's own reader must find as many samples in each function, each with the period.
perf_reads_the_same() {
	record 0 ebbprof_work threads 500 3
	must perf report -i "$work/data" --stdio -F sample,sym 2>"$work/complaints" >"$work/perf"
	cat "$work/complaints"
	awk '$1 ~ /^[0-9]+$/ { print $3, $1 }' "$work/perf" | grep -E '^(half|three_tenths|fifth) ' | sort >"$work/by_perf"
	must ebbprof report "$work/data" -o "$work/report"
	awk '$5 ~ /^[0-9]+$/ { print $6, $5 }' "$work/report" | grep -E '^(half|three_tenths|fifth) ' | sort >"$work/by_ebbprof"
	must diff "$work/by_perf" "$work/by_ebbprof"
	[ "$(wc -l <"$work/by_perf")" -eq 3 ] || fail "not three functions"
	must perf script -i "$work/data" -F comm,pid,tid,time,period,ip,sym,dso >"$work/script"
	read -r samples _ <<-END
		$(said_samples)
	END
	[ "$(grep -c "ebbprof_work .* $PERIOD " "$work/script")" -eq "$samples" ] || fail "not $samples lines of perf script"
	must perf script -i "$work/data" --show-task-events --show-mmap-events >"$work/script"
	must grep -q 'PERF_RECORD_MMAP2.*libebbprof_work.so' "$work/script"
	for record in FORK EXIT; do
		[ "$(grep -c "PERF_RECORD_$record" "$work/script")" -eq 4 ] || fail "not four tasks: $record"
	done
	must perf buildid-list -i "$work/data" >"$work/ids"
	for file in ebbprof_work libebbprof_work.so; do
		id=$(perf buildid-list -i "$programs/$file")
		must grep -q "^${id:?} .*/$file$" "$work/ids"
	done
	must perf report -i "$work/data" --header-only >"$work/header"
	must grep -q 'cmdline.*ebbprof_work threads 500 3' "$work/header"
}

each_thread_has_its_share() {
	record 0 ebbprof_work threads 500 8
	accounted 4000 1.1 8
	must ebbprof report --by thread "$work/data" -o "$work/report"
	cat "$work/report"
	# 500 passes of 10000 instructions make 4955 periods.
	alike=$(awk -v less="$less" -v more="$more" '$5 > 4955 * (1 - less) && $5 < 4955 * (1.1 + more)' "$work/report" | wc -l)
	[ "$alike" -eq 8 ] || fail "not eight threads with equal shares"
}

# A third of the children executes another program.
forks_and_execs() {
	record 0 ebbprof_work storm 30 30
	grep -q 'of 71 threads' "$work/said" || fail "not 71 threads"
	accounted 1810 1.3 71
	must perf script -i "$work/data" -F comm >"$work/script"
	must grep -qw exe "$work/script"
}

program_is_replaced() {
	record 0 ebbprof_work exec 1000
	accounted 2000 1.1 2
	shares
}

status_is_the_programs() {
	# The program's arguments need not be UTF-8: this one is Latin-1.
	record 7 ebbprof_work leave 100 7 "$(printf 'caf\351')"
	accounted 100
}

killed_program_has_its_samples() {
	record 137 ebbprof_work die 1000
	accounted 1000
	shares
}

# While the recorder is stopped, the ring fills up. It has room for 4096 samples.
full_ring_counts_what_it_loses() {
	ebbprof record -c "$PERIOD" -m 64 -o "$work/data" ebbprof_work plain 4000 2>"$work/said" &
	recorder=$!
	runs ebbprof_work 0.01
	kill -STOP "$recorder"
	# The program has ended, perhaps as a zombie, once it has no open files.
	while [ -e "/proc/$program/fd/0" ]; do
		sleep 0.1
	done
	kill -CONT "$recorder"
	must wait "$recorder"
	cat "$work/said"
	accounted 4000
	# The recorder stops before it has read any samples, so the ring has a few less (4085 were
	# seen).
	said_samples | awk '{ exit($2 < 1000 || $1 < 4000) }' || fail "not the expected number of lost samples"
	must ebbprof report "$work/data" -o "$work/report"
	must grep -q " $(said_samples | cut -d ' ' -f 2) lost" "$work/report"
	perf report -i "$work/data" --stdio 2>&1 | grep -qi 'lost' || fail "perf does not report lost samples"
}

# refuses TEXT ARGUMENT...: checks that ebbprof record does not run the program and prints TEXT as
# the reason.
refuses() {
	text=$1
	shift
	status=0
	ebbprof record -o "$work/none" "$@" >"$work/said" 2>&1 || status=$?
	cat "$work/said"
	[ "$status" -eq 125 ] || fail "'$*': status $status"
	grep -q "$text" "$work/said" || fail "'$*': not $text"
	[ ! -e "$work/none" ] || fail "'$*' created a file"
}

# cannot_be_profiled TEXT PROGRAM: checks that ebbprof check refuses the program and prints TEXT as
# the reason.
cannot_be_profiled() {
	! ebbprof check "$2" >"$work/said" || fail "$2 can be profiled"
	cat "$work/said"
	must grep -q "^FAILED *$2: .*$1" "$work/said"
}

refusals_are_told() {
	refuses 'it is static' busybox true
	cp "$programs/ebbprof_work" /tmp/setuid
	chown nobody /tmp/setuid
	chmod u+s /tmp/setuid
	refuses 'set-user-ID' /tmp/setuid plain 1
	cannot_be_profiled 'set-user-ID' /tmp/setuid
	rm /tmp/setuid
	refuses 'uses EBBs itself' libebb_calls_shared
	cannot_be_profiled 'uses EBBs itself' libebb_calls_shared
	refuses 'no such program' ./nothing
	refuses 'no event of this name' -e nonsense ebbprof_work plain 1
	echo '#!/bin/busybox sh' >"$work/script"
	chmod +x "$work/script"
	refuses 'it is static' "$work/script"
	echo "#!$work/script" >"$work/script"
	refuses 'too many nested script interpreters' "$work/script"
	must ebbprof check ebbprof_work
	cannot_be_profiled 'it is static' busybox
}

# Go and OCaml 5 have small stacks. The runtime may be in the program or in a shared object that it
# is linked to.
small_stacks_are_refused() {
	for program in ebbprof_go ebbprof_linked_to_go ebbprof_ocaml ebbprof_linked_to_ocaml; do
		refuses 'whose stacks may have less room than a sample takes' "$program" 1
		case $program in *_linked_to_*)
			must grep -q "/libebbprof_${program##*_}.so: it has" "$work/said"
			;;
		esac
		cannot_be_profiled 'whose stacks may have less room' "$program"
		must ebbprof check --small-stacks "$program"
		record 0 --small-stacks "$program" 500
		accounted 500
		# If such a program is executed later, it runs without samples.
		record 0 ebbprof_runs ignores "$program" 500
		must grep -q ' have no samples: the stacks of its runtime' "$work/said"
		must ebbprof report "$work/data" -o "$work/report"
		! grep ' half ' "$work/report" || fail "$program has samples"
		record 0 --small-stacks ebbprof_runs ignores "$program" 500
		accounted 500 1.3
		must ebbprof report "$work/data" -o "$work/report"
		must grep ' half ' "$work/report"
	done
	must ebbprof check ebbprof_stacks
	record 0 ebbprof_stacks 500
	accounted 500
}

# ebbprof finds its library where `make install-ebbprof` installs both, and reports an error
# elsewhere.
library_is_found_where_it_is_installed() {
	mkdir -p "$work/bin" "$work/lib/ebbprof"
	cp "$programs/ebbprof" "$work/bin/"
	cp "$programs/libebbprof.so" "$work/lib/ebbprof/"
	PATH=$work/bin:$PATH
	record 0 ebbprof_work plain 100
	accounted 100 1.3
	rm "$work/lib/ebbprof/libebbprof.so"
	refuses 'cannot find libebbprof.so' ebbprof_work plain 1
}

# A pinned event of the CPU occupies the PMU.
occupied_pmu_is_told() {
	perf stat -a -e cycles:D sleep 10 >/dev/null 2>&1 &
	holder=$!
	sleep 1
	refuses 'another pinned group' ebbprof_work plain 1
	! ebbprof check >"$work/said" || fail "ebbprof check accepts an occupied PMU"
	must grep -q '^FAILED *an EBB event: .*another pinned group' "$work/said"
	kill -INT "$holder"
	wait "$holder"
}

# On Debian's kernel, one level of kernel.perf_event_paranoid restricts perf to root.
paranoid_kernel_is_told() {
	paranoid=/proc/sys/kernel/perf_event_paranoid
	level=$(cat "$paranoid")
	echo 3 >"$paranoid"
	status=0
	su nobody -s /bin/sh -c "PATH=$PATH; ebbprof check; echo status \$?" >"$work/said" 2>&1 || status=$?
	echo "$level" >"$paranoid"
	cat "$work/said"
	must [ "$status" -eq 0 ]
	must grep -q '^ok *kernel.perf_event_paranoid: 3$' "$work/said"
	must grep -q '^FAILED *an EBB event: .*kernel.perf_event_paranoid .*forbids it$' "$work/said"
	must grep -q '^status 1$' "$work/said"
}

command -v perf >/dev/null || skip_all "there is no perf tool"
[ -e /lib64/ld64.so.2 ] || skip_all "there are no shared libraries"
run_tests shares_are_the_programs events_have_names perf_reads_the_same each_thread_has_its_share \
	forks_and_execs program_is_replaced status_is_the_programs killed_program_has_its_samples \
	full_ring_counts_what_it_loses refusals_are_told small_stacks_are_refused \
	library_is_found_where_it_is_installed occupied_pmu_is_told paranoid_kernel_is_told

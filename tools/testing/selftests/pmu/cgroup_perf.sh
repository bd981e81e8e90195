#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Counts of control groups with the perf tool (-G, --for-each-cgroup), under the built-in driver and
# under the module, in one boot: each count is that of the group's own programs.
#
# Needs the perf tool in the guest (`scripts/vm run --perf`), and cgroup v2.

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"

GROUPS_FOLDER=/sys/fs/cgroup
WORK=40000000

# The program that perf runs. It executes WORK instructions in group "one", at the same time twice
# as many in "two", and three times as many in neither group.
cat >"$work/programs" <<END
#!/bin/sh
in_group() {
	sh -c "echo \\\$\\\$ >$GROUPS_FOLDER/\$1/cgroup.procs; exec pmu_tool work \$2" &
}
in_group one $WORK
in_group two $((2 * WORK))
pmu_tool work $((3 * WORK)) &
wait
END
chmod +x "$work/programs"

# stat_of NAME OPTION...: writes perf's counts of the groups to $work/NAME, as "GROUP EVENT COUNT".
stat_of() {
	name=$1
	shift
	must perf stat -a -x , -o "$work/stat" "$@" "$work/programs"
	cat "$work/stat"
	awk -F , '{
		group = ""
		for (n = 2; n <= NF; n++) if ($n == "one" || $n == "two") group = $n
		if (group != "") print group, $3, $1
	}' "$work/stat" >"$work/$name"
}

# observe DRIVER: writes the counts and samples that the tests compare to $work/DRIVER.*.
observe() {
	stat_of "$1.listed" -e instructions -e instructions -G one,two
	stat_of "$1.each" -e instructions,cycles,cpu/event=0x1001e/ --for-each-cgroup one,two
	must perf record -q -a -e instructions -c 1000003 -G one -o "$work/data" "$work/programs"
	must perf script -i "$work/data" -F comm >"$work/$1.samples"
	sort "$work/$1.samples" | uniq -c
}

drivers_are_observed() {
	# The kernel makes a group's perf_event controller available once some controller is
	# enabled, which systemd does.
	echo +pids >"$GROUPS_FOLDER/cgroup.subtree_control" || fail "there is no cgroup v2"
	must mkdir "$GROUPS_FOLDER/one" "$GROUPS_FOLDER/two"
	under_both observe
}

# counted FILE: checks that each group counted the instructions of its work. Starting a program adds
# some million.
counted() {
	for driver in in-tree rust; do
		awk -v work="$WORK" '
			$2 ~ /^instructions/ {
				groups[$1]
				times = $1 == "two" ? 2 : 1
				print
				if ($3 < times * work || $3 > times * work * 1.2 + 10000000) { print "not " times * work; bad = 1 }
			}
			END { exit(bad || !("one" in groups) || !("two" in groups)) }
		' "$work/$driver.$1" || fail "$driver: not the groups' instructions"
	done
}

listed_groups() {
	counted listed
}

each_group() {
	counted each
}

# Checks that all samples are of the group's programs, and that there are about as many as its
# instructions make.
samples_of_a_group() {
	for driver in in-tree rust; do
		awk -v least="$((WORK * 3 / 4 / 1000003))" -v driver="$driver" '
			$1 !~ /^(pmu_tool|sh)$/ { print "a sample of " $1; bad = 1 }
			{ samples++ }
			END { print driver ": " samples + 0 " samples"; exit(bad || samples < least) }
		' "$work/$driver.samples" || fail "$driver: not the group's samples"
	done
}

restore_at_end
run_tests drivers_are_observed listed_groups each_group samples_of_a_group

#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Programs of Debian's archive behave the same with ebbprof and without it: they have the same
# output, error messages and exit status. All their threads have samples.
#
# Needs these programs in the guest: `scripts/vm run --packages fzf gzip python3 sqlite3 unison xz-utils`.

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"

PERIOD=20011

# same STATUS COMMAND...: checks that the command exits with this status and writes the same, with
# ebbprof and without.
same() {
	expected=$1
	shift
	status=0
	"$@" <"$input" >"$work/plain" 2>"$work/err" || status=$?
	[ "$status" -eq "$expected" ] || fail "'$*': status $status: $(cat "$work/err")"
	status=0
	ebbprof record -g -c "$PERIOD" -o "$work/data" "$@" <"$input" >"$work/out.sampled" 2>"$work/said" || status=$?
	grep '^ebbprof: ' "$work/said" || fail "'$*': ebbprof prints nothing"
	[ "$status" -eq "$expected" ] || fail "'$*': status $status"
	cmp "$work/plain" "$work/out.sampled" || fail "'$*': other output"
	grep -v '^ebbprof: ' "$work/said" | cmp - "$work/err" || fail "'$*': other complaints"
	! grep 'have no samples' "$work/said" || fail "'$*': threads without samples"
	read -r samples threads <<-END
		$(sed -n 's/^ebbprof: \([0-9]*\) samples of \([0-9]*\) threads, 0 lost.*/\1 \2/p' "$work/said")
	END
	[ "${samples:-0}" -ge 50 ] || fail "${samples:-no} samples, or lost ones"
}

# in_threads NUMBER: checks that the last program had at least this number of threads.
in_threads() {
	[ "$threads" -ge "$1" ] || fail "$threads threads"
}

gzip_packs_and_unpacks() {
	same 0 /usr/bin/gzip -9 -c
	mv "$work/plain" "$work/packed"
	input=$work/packed same 0 /usr/bin/gzip -dc
	must cmp "$work/plain" "$input"
	# Cut off the end of the file.
	head -c 10000 "$work/packed" >"$work/cut"
	input=$work/cut PERIOD=2003 same 1 /usr/bin/gzip -dc
}

xz_packs_in_threads() {
	same 0 /usr/bin/xz -1 -T3 --block-size=32KiB -c
	in_threads 4
}

sqlite3_answers() {
	same 0 /usr/bin/sqlite3 :memory: "
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
		SELECT i % 7, count(*), sum(i * i % 101) FROM n GROUP BY 1 ORDER BY 3;"
	PERIOD=2003 same 1 /usr/bin/sqlite3 :memory: 'SELECT * FROM missing;'
}

python3_runs_threads_and_programs() {
	cat >"$work/program.py" <<-'END'
		import hashlib, subprocess, sys, threading
		text = sys.stdin.buffer.read()
		found = {}
		def digest(n):
		    found[n] = hashlib.sha256(text[n::4]).hexdigest()
		threads = [threading.Thread(target=digest, args=(n,)) for n in range(4)]
		for thread in threads:
		    thread.start()
		for thread in threads:
		    thread.join()
		print(sorted(found.items()))
		print(subprocess.run(["/usr/bin/gzip", "-n"], input=text, capture_output=True).stdout[-8:])
		print("to stderr", file=sys.stderr)
		sys.exit(3)
	END
	same 3 /usr/bin/python3 -I "$work/program.py"
	in_threads 6
}

# refused PROGRAM RUNTIME: checks that `check` and `record` refuse the program because of its
# runtime.
refused() {
	! ebbprof check "$1" >"$work/said" || fail "$1 can be profiled"
	cat "$work/said"
	must grep -q "^FAILED *$1: .*$1: it has $2, whose stacks" "$work/said"
	status=0
	ebbprof record -o "$work/none" "$1" --version >"$work/said" 2>&1 || status=$?
	cat "$work/said"
	[ "$status" -eq 125 ] || fail "$1: status $status"
	must grep -q "it has $2, whose stacks" "$work/said"
	must ebbprof check --small-stacks "$1"
}

# One program is written in Go, the other in OCaml 5.
small_stacks_are_refused() {
	refused /usr/bin/fzf "Go's runtime"
	refused /usr/bin/unison-2.53 "the native runtime of OCaml 5"
}

for name in fzf gzip python3 sqlite3 unison-2.53 xz; do
	[ -x /usr/bin/$name ] || skip_all "there is no $name"
done
input=$work/input
cat /usr/lib/python3*/[a-d]*.py | head -c 300000 >"$input"
run_tests gzip_packs_and_unpacks xz_packs_in_threads sqlite3_answers python3_runs_threads_and_programs \
	small_stacks_are_refused

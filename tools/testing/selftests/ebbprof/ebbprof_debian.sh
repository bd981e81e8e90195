#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Programs of Debian's archive do the same with ebbprof as without it: output, complaints and exit
# status; and all their threads have samples.
#
# Needs these programs in the guest: `scripts/vm run --packages fzf gzip openssl pigz python3
# sqlite3 unison xz-utils`.

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"

PERIOD=20011

# same STATUS COMMAND...: it exits with this status, with ebbprof and without, and writes the same.
same() {
	expected=$1
	shift
	status=0
	"$@" <"$input" >"$work/plain" 2>"$work/err" || status=$?
	[ "$status" -eq "$expected" ] || fail "'$*': status $status: $(cat "$work/err")"
	status=0
	ebbprof record -g -c "$PERIOD" -o "$work/data" "$@" <"$input" >"$work/out.sampled" 2>"$work/said" || status=$?
	grep '^ebbprof: ' "$work/said" || fail "'$*': ebbprof says nothing"
	[ "$status" -eq "$expected" ] || fail "'$*': status $status"
	cmp "$work/plain" "$work/out.sampled" || fail "'$*': other output"
	grep -v '^ebbprof: ' "$work/said" | cmp - "$work/err" || fail "'$*': other complaints"
	! grep 'have no samples' "$work/said" || fail "'$*': threads without samples"
	read -r samples threads <<-END
		$(sed -n 's/^ebbprof: \([0-9]*\) samples of \([0-9]*\) threads, 0 lost.*/\1 \2/p' "$work/said")
	END
	[ "${samples:-0}" -ge 50 ] || fail "${samples:-no} samples, or lost ones"
}

# in_threads NUMBER: the last program had so many.
in_threads() {
	[ "$threads" -ge "$1" ] || fail "$threads threads"
}

gzip_packs_and_unpacks() {
	same 0 /usr/bin/gzip -9 -c
	mv "$work/plain" "$work/packed"
	input=$work/packed same 0 /usr/bin/gzip -dc
	must cmp "$work/plain" "$input"
	# The end is missing.
	head -c 10000 "$work/packed" >"$work/cut"
	input=$work/cut PERIOD=2003 same 1 /usr/bin/gzip -dc
}

xz_packs_in_threads() {
	same 0 /usr/bin/xz -1 -T3 --block-size=32KiB -c
	in_threads 4
}

pigz_packs_in_threads() {
	same 0 /usr/bin/pigz -n -p 3 -b 32 -c
	in_threads 4
}

openssl_digests_and_enciphers() {
	same 0 /usr/bin/openssl dgst -sha256 -r
	same 0 /usr/bin/openssl enc -aes-256-cbc -pbkdf2 -S 0102030405060708 -k secret
	same 1 /usr/bin/openssl x509 -noout -in "$work/missing"
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

# refused PROGRAM RUNTIME: neither `check` nor `record` takes it, for its runtime.
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

# One is of Go, the other of OCaml 5.
small_stacks_are_refused() {
	refused /usr/bin/fzf "Go's runtime"
	refused /usr/bin/unison-2.53 "the native runtime of OCaml 5"
}

# As many samples of each stack as `collapsed` has, read by what knows the format's numbers only.
pprof_has_the_same_stacks() {
	same 0 /usr/bin/pigz -n -p 3 -b 32 -c
	must ebbprof pprof "$work/data" -o "$work/profile.pb.gz"
	must ebbprof collapsed "$work/data" -o "$work/collapsed"
	cat >"$work/read.py" <<-'END'
		import collections, gzip, sys
		def number(data, at):
		    value = shift = 0
		    while True:
		        byte = data[at]
		        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
		        if byte < 128:
		            return value, at
		def fields(data):
		    found, at = collections.defaultdict(list), 0
		    while at < len(data):
		        key, at = number(data, at)
		        value, at = number(data, at)
		        if key & 7 == 2:
		            value, at = data[at:at + value], at + value
		        elif key & 7:
		            sys.exit("field %d of kind %d" % (key >> 3, key & 7))
		        found[key >> 3].append(value)
		    return found
		def numbers(data):
		    at = 0
		    while at < len(data):
		        value, at = number(data, at)
		        yield value
		profile = fields(gzip.open(sys.argv[1]).read())
		texts = [text.decode() for text in profile[6]]
		if texts[0]:
		    sys.exit("text 0 is no empty one")
		def by_id(tag):
		    return {one[1][0]: one for one in map(fields, profile[tag])}
		functions, locations, mappings = by_id(5), by_id(4), by_id(3)
		def place(id):
		    location = locations[id]
		    if not texts[mappings[location[2][0]][5][0]]:
		        sys.exit("an object without a name")
		    return texts[functions[fields(location[4][0])[1][0]][2][0]]
		types = [[texts[one[n][0]] for n in (1, 2)] for one in map(fields, profile[1])]
		period = profile[12][0]
		if types != [["samples", "count"], ["cycles", "count"]] or period != int(sys.argv[2]):
		    sys.exit("%s, every %d" % (types, period))
		lines = []
		for sample in map(fields, profile[2]):
		    count, weight = (number for data in sample[2] for number in numbers(data))
		    if weight != count * period:
		        sys.exit("%d samples of %d counts" % (count, weight))
		    label = fields(sample[3][0])
		    if texts[label[1][0]] != "thread":
		        sys.exit("no thread")
		    stack = [place(id) for data in sample[1] for id in numbers(data)]
		    names = [texts[label[2][0]], *reversed(stack)]
		    lines.append((";".join(name.replace(";", ":") for name in names), count))
		# Functions of the same name in several objects are one for collapsed.
		counts = collections.Counter()
		for stack, count in lines:
		    counts[stack] += count
		print(*sorted("%s %d" % line for line in counts.items()), sep="\n")
	END
	must /usr/bin/python3 -I "$work/read.py" "$work/profile.pb.gz" "$PERIOD" >"$work/read"
	LC_ALL=C sort "$work/read" >"$work/read.sorted"
	LC_ALL=C sort "$work/collapsed" >"$work/collapsed.sorted"
	cmp "$work/read.sorted" "$work/collapsed.sorted" || {
		diff "$work/read.sorted" "$work/collapsed.sorted" | head -n 20
		fail "other stacks"
	}
}

for name in fzf gzip openssl pigz python3 sqlite3 unison-2.53 xz; do
	[ -x /usr/bin/$name ] || skip_all "there is no $name"
done
input=$work/input
cat /usr/lib/python3*/[a-d]*.py | head -c 300000 >"$input"
run_tests gzip_packs_and_unpacks xz_packs_in_threads pigz_packs_in_threads \
	openssl_digests_and_enciphers sqlite3_answers python3_runs_threads_and_programs \
	small_stacks_are_refused pprof_has_the_same_stacks

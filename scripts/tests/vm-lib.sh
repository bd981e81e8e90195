# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# What the tests of scripts/vm share: KTAP output and a way to run it. Source it
# with $top set to the checkout; begin the test with `plan N` and end it with
# `finish`.

: "${top:?}"
EBB_CACHE=${EBB_CACHE:-$top/.cache}
mkdir -p "$EBB_CACHE/run"
# In the cache, because other folders are not seen inside the private root.
work=$(mktemp -d "$EBB_CACHE/run/test.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
out=$work/stdout err=$work/stderr
planned=0 number=0 failed=0

plan() {
	planned=$1
	printf 'KTAP version 1\n1..%s\n' "$planned"
}

finish() {
	[ "$number" -eq "$planned" ] || {
		echo "# $number results instead of $planned"
		exit 1
	}
	[ "$failed" -eq 0 ]
}

# vm ARGUMENT...: runs scripts/vm; sets $status, and has its output in $out, $err.
vm() {
	status=0
	"$top/scripts/vm" "$@" >"$out" 2>"$err" </dev/null || status=$?
}

# in_guest COMMAND...: the same, under the kernel's own driver, so that these
# tests need no module.
in_guest() {
	vm run --driver in-tree -- "$@"
}

# check NAME TEST...: one result, the outcome of the command TEST; on failure with
# what the last run of vm printed.
check() {
	name=$1
	shift
	number=$((number + 1))
	if "$@"; then
		echo "ok $number $name"
	else
		failed=$((failed + 1))
		echo "not ok $number $name"
		echo "# failed: $*"
		echo "# exit status ${status-}; stdout and the end of stderr:"
		head -n 15 "$out" | head -c 2000 | tr -c '[:print:]\n' '?' | sed 's/^/#   /'
		tail -n 15 "$err" | sed 's/^/#   /'
	fi
}

# printed TEXT: stdout was exactly TEXT and a newline.
printed() {
	printf '%s\n' "$1" | cmp -s - "$out"
}

# ended STATUS TEXT: vm exited with STATUS and said TEXT in an error of its own.
ended() {
	[ "$status" -eq "$1" ] && grep '^vm: ' "$err" | grep -qF -e "$2"
}

# The path of the kernel's log that the last run kept.
kept_log() {
	sed -n "s/^vm: the kernel's log is //p" "$err"
}

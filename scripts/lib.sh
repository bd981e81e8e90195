# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# Shared parts of the scripts: where things are, how a step is shown and logged, how two
# runs wait for each other, and what a user may do on this machine. Sets $top to the
# checkout, except for the recipes of scripts/setup, which are run with $top.

# One line to stderr: progress never mixes with what a command prints.
say() {
	printf '%s\n' "$*" >&2
}

die() {
	say "error: $*"
	exit 1
}

top=${top:-$(cd "$(dirname "$0")/.." && pwd -P)}
# What is made here is read by others, such as apt's own user.
umask 022
# Physical and absolute: in-root shows the same directory under the same name.
# Nothing is made before there is something to keep.
EBB_CACHE=$(realpath -m -- "${EBB_CACHE:-$top/.cache}") || exit 1
export EBB_CACHE
# The programs for the guest, which `make tools` builds.
# shellcheck disable=SC2034
programs=$EBB_CACHE/target/tools/powerpc64le-unknown-linux-gnu/release

# make's M= cannot hold a blank or a colon, and lists of paths here are split at
# the first.
case $top$EBB_CACHE in
*[[:space:]]* | *:*) die "the paths of checkout and EBB_CACHE may not hold blanks or colons: $top, $EBB_CACHE" ;;
esac

# Arguments of make in the cross builds of kernel and module, in one place. $llvm is for clang only.
# shellcheck disable=SC2034
cross='ARCH=powerpc CROSS_COMPILE=powerpc64le-linux-gnu-' llvm='LLVM=-19'

# step NAME CMD...: run CMD with its output in a log of that name, show how long
# it took, in one line, as two steps may run at once; when it fails show the end of the
# log and its path. CMD is a program, not a function, so that its own `set -e` is in force.
# Until it has succeeded the log bears this shell's number too: another run may be at the
# same step.
step() {
	step_base=$EBB_CACHE/log/$(printf '%s' "$1" | tr -c 'A-Za-z0-9.' '-')
	step_log=$step_base.$$.log
	mkdir -p "$EBB_CACHE/log"
	# Those of failures long mended.
	find "$EBB_CACHE/log" -maxdepth 1 -name '*.*.log' -mtime +7 -delete
	step_start=$(date +%s)
	step_name=$(printf '  %-40s' "$1")
	shift
	step_status=0
	"$@" >"$step_log" 2>&1 </dev/null || step_status=$?
	step_time=$(($(date +%s) - step_start))
	if [ "$step_status" -eq 0 ]; then
		say "$step_name $step_time s"
		mv "$step_log" "$step_base.log"
		step_log=$step_base.log
		return 0
	fi
	say "$step_name FAILED after $step_time s (status $step_status); the end of its log:"
	tail -n 15 "$step_log" | sed 's/^/    /' >&2
	say "  the whole log: $step_log"
	return "$step_status"
}

# lock NAME: hold the lock NAME until this shell ends. Children inherit it, so
# what an interrupted run left running keeps the next one waiting as well.
lock() {
	mkdir -p "$EBB_CACHE/lock"
	exec 9>"$EBB_CACHE/lock/$1" || exit 1
	flock -n 9 && return 0
	say "waiting for another run that holds $EBB_CACHE/lock/$1"
	flock 9
}

# fingerprint DIR PATH...: one checksum of the names, kinds and sizes of all
# files under these paths of DIR. Reads no contents, so it is quick.
fingerprint() {
	(cd "$1" && shift && find "$@" ! -type d -printf '%y %s %p\n' | LC_ALL=C sort | sha256sum)
}

# Stops if the cache, or something in it, belongs to another user: only that user can write there.
require_own_cache() {
	foreign=$(find "$EBB_CACHE" -maxdepth 1 ! -name lost+found ! -user "$(id -u)" 2>/dev/null | head -n 1)
	[ -z "$foreign" ] ||
		die "$foreign belongs to $(stat -c %U "$foreign"), you are $(id -un) (EBB_CACHE=DIR puts the cache elsewhere)"
}

# find_namespace PATH...: sets $namespace to the option by which unshare(1) gives a private mount
# namespace here, or stops. In a user namespace (-Urm) every user may mount. Root also may without
# one (-m), and must in three cases: user namespaces are forbidden; root is in the private root
# already (no user namespace can be made behind a chroot); a PATH belongs to another user (in a user
# namespace root could not write there).
find_namespace() {
	order='-Urm -m'
	[ -z "$(find "$@" -maxdepth 0 ! -user "$(id -u)")" ] || order='-m -Urm'
	for namespace in $order; do
		unshare "$namespace" mount -t tmpfs none / 2>/dev/null && return
	done
	die "$(id -un) may not make a user namespace (unshare -Urm): $(find_obstacle)"
}

# Prints what forbids user namespaces, and what to do about it. Tests put their own folder in the
# place of /proc.
find_obstacle() {
	proc=${EBB_PROC:-/proc}
	if grep -qs '^Seccomp:[[:space:]]*[12]' "$proc/self/status"; then
		echo "the container's seccomp profile forbids it; start it with" \
			"docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
	elif grep -qsx 0 "$proc/sys/user/max_user_namespaces"; then
		echo "they are turned off; as root: sysctl user.max_user_namespaces=10000"
	elif grep -qsx 0 "$proc/sys/kernel/unprivileged_userns_clone"; then
		echo "only root may; as root: sysctl kernel.unprivileged_userns_clone=1"
	elif grep -qsx 1 "$proc/sys/kernel/apparmor_restrict_unprivileged_userns"; then
		echo "AppArmor restricts them; as root: sysctl kernel.apparmor_restrict_unprivileged_userns=0"
	elif [ "$(id -u)" -eq 0 ] && grep -qs '^CapEff:[[:space:]]*[0-9a-f]\{8\}[0-7]' "$proc/self/status"; then
		# The kernel wants it of a user 0 who becomes root there (bit 31).
		echo "root lacks CAP_SETFCAP; start the container with --cap-add SETFCAP, or as an ordinary user"
	else
		echo "the kernel lacks CONFIG_USER_NS, or a chroot or a security module" \
			"(such as a container's AppArmor profile) forbids them or mounts in them"
	fi
}

# unpack PACKAGE FOLDER [OPTION]...: unpacks the files of a Debian package, with these options of
# tar(1). All belong to the caller: a user namespace has no other owner.
unpack() {
	package=$1 folder=$2
	shift 2
	dpkg-deb --fsys-tarfile "$package" |
		tar -C "$folder" -x -p --no-same-owner --keep-directory-symlink --warning=no-timestamp "$@"
}

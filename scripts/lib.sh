# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# Functions that the scripts share: paths, steps with their logs, locks, and tests of what the
# user may do on this machine. Sets $top to the checkout, unless it is set, as for the recipes of
# scripts/setup.

# say WORD...: prints a line to stderr, so that it does not mix with the output of a command.
say() {
	printf '%s\n' "$*" >&2
}

die() {
	say "error: $*"
	exit 1
}

top=${top:-$(cd "$(dirname "$0")/.." && pwd -P)}
# Other users read the files, such as that of apt.
umask 022
# Make the path physical and absolute: in-root shows the same directory under the same name. The
# directory itself is made only when there is something to store.
EBB_CACHE=$(realpath -m -- "${EBB_CACHE:-$top/.cache}") || exit 1
export EBB_CACHE
# The programs for the guest, which `make tools` builds.
# shellcheck disable=SC2034
programs=$EBB_CACHE/target/tools/powerpc64le-unknown-linux-gnu/release

# make's M= cannot contain a blank or a colon, and lists of paths here are split at blanks.
case $top$EBB_CACHE in
*[[:space:]]* | *:*) die "the paths of checkout and EBB_CACHE may not hold blanks or colons: $top, $EBB_CACHE" ;;
esac

# Arguments of make for the cross builds of kernel and module. $llvm is for clang only.
# shellcheck disable=SC2034
cross='ARCH=powerpc CROSS_COMPILE=powerpc64le-linux-gnu-' llvm='LLVM=-19'

# step NAME CMD...: runs CMD with its output in a log of that name, and prints how long it took.
# If CMD fails, prints the end of the log and its path. Each message is a single line, because two
# steps may run at the same time. CMD must be a program, not a function, so that its own `set -e`
# works. Until CMD has succeeded, the log's name also has the number of this shell, because another
# run may be at the same step.
step() {
	step_base=$EBB_CACHE/log/$(printf '%s' "$1" | tr -c 'A-Za-z0-9.' '-')
	step_log=$step_base.$$.log
	mkdir -p "$EBB_CACHE/log"
	# Remove the logs of failures that are a week old.
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

# lock NAME: takes the lock NAME, and keeps it until this shell ends. Child processes inherit it, so
# the next run also waits for processes that an interrupted run left.
lock() {
	mkdir -p "$EBB_CACHE/lock"
	exec 9>"$EBB_CACHE/lock/$1" || exit 1
	flock -n 9 && return 0
	say "waiting for another run that holds $EBB_CACHE/lock/$1"
	flock 9
}

# fingerprint DIR PATH...: prints a checksum of the names, kinds and sizes of all files below these
# paths of DIR. It reads no contents, so it is quick.
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

# Prints what forbids user namespaces, and how to allow them. Tests replace /proc by a folder of their
# own.
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
		# The kernel requires it (bit 31) if user 0 is to be root in the namespace.
		echo "root lacks CAP_SETFCAP; start the container with --cap-add SETFCAP, or as an ordinary user"
	else
		echo "the kernel lacks CONFIG_USER_NS, or a chroot or a security module" \
			"(such as a container's AppArmor profile) forbids them or mounts in them"
	fi
}

# unpack PACKAGE FOLDER [OPTION]...: unpacks the files of a Debian package, with these options of
# tar(1). All files belong to the caller, because a user namespace has no other user.
unpack() {
	package=$1 folder=$2
	shift 2
	dpkg-deb --fsys-tarfile "$package" |
		tar -C "$folder" -x -p --no-same-owner --keep-directory-symlink --warning=no-timestamp "$@"
}

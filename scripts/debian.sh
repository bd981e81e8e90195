# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# Reads this machine's package configuration: its Debian mirror, its proxies. Source it after
# lib.sh.

# The release of the private root.
suite=trixie
backports=$suite-backports

# Prints the URIs of the archives that may be a Debian mirror, from apt's own parser of its
# configuration (one-line and deb822; no index needs to be there): component main of a plain
# release, which excludes -updates, -security and most others.
mirror_candidates() {
	name=$(sed -n 's/^VERSION_CODENAME=//p' "${EBB_OS_RELEASE:-/etc/os-release}")
	apt-get update --print-uris |
		sed -nE "s,^'(.*)/dists/($name|oldstable|stable|testing|unstable|sid)/main/binary-amd64/.*,\\1,p" |
		awk '!seen[$0]++'
}

# Returns whether URI $1 is a Debian archive with both suites. It uses apt's own downloader, so that
# apt's proxies and certificates apply.
mirror_answers() {
	probe=$EBB_CACHE/probe.$$ answers=yes
	for name in "$suite" "$backports"; do
		timeout 30 /usr/lib/apt/apt-helper -o APT::Sandbox::User=root -o Acquire::Retries=1 \
			-o Acquire::http::Timeout=10 -o Acquire::https::Timeout=10 download-file "$1/dists/$name/InRelease" "$probe" >/dev/null 2>&1 &&
			grep -q '^Origin: Debian' "$probe" || answers=
		rm -f "$probe"
	done
	[ "$answers" ]
}

# Prints the first mirror of the host's configuration that answers. From a list of mirrors in a file
# it tries the first one.
find_mirror() {
	tried=
	for mirror in $(mirror_candidates); do
		case $mirror in
		mirror+file:*) mirror=$(sed -n 's/^\([a-z]*:[^[:space:]]*\).*/\1/p' "${mirror#mirror+file:}" | head -n 1) ;;
		esac
		mirror=${mirror%/}
		tried="$tried $mirror"
		case $mirror in
		http://* | https://*) ! mirror_answers "$mirror" || { printf '%s\n' "$mirror" && return; } ;;
		esac
	done
	[ "$tried" ] || die "apt's configuration names no Debian archive (component main of the host's release)"
	die "no Debian mirror of apt's configuration answers with $suite and $backports; tried:$tried"
}

# Prints apt's settings for the access to archives.
apt_access() {
	apt-config dump | grep -E '^Acquire::(https?|Check-[A-Za-z-]+|Retries)[: ]' || :
}

# Prints a configuration of apt that shares only the access to archives with the machine's:
# everything else is in the folder $1. Needs no privileges.
private_apt() {
	cat <<-EOF
		Dir::Etc::main "/dev/null";
		Dir::Etc::parts "/dev/null";
		Dir::Etc::preferences "/dev/null";
		Dir::Etc::preferencesparts "/dev/null";
		Dir::Etc::sourcelist "$1/sources.list";
		Dir::Etc::sourceparts "/dev/null";
		Dir::State "$1";
		Dir::State::status "$1/status";
		Dir::Cache "$1/cache";
		APT::Architecture "amd64";
		#clear APT::Architectures;
		APT::Architectures "amd64";
		APT::Sandbox::User "root";
		Acquire::Languages "none";
	EOF
	apt_access
}

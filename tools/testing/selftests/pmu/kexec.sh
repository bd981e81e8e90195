#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kexec with a running PMU: under the module, events count, sample and raise EBBs while the kernel
# starts another kernel. In that kernel, both drivers and EBBs work.
#
# usage: kexec.sh            starts the kernel
#        kexec.sh after      in which this runs the tests
#
# Needs kexec and the file of the kernel (`scripts/vm run --packages kexec-tools --add-kernel`). The
# initramfs of the other kernel has the files of this guest, with another command to run.

# The tests are called by their names.
# shellcheck disable=SC2329
# shellcheck source=tools/testing/selftests/pmu/driver.sh
. "$(dirname "$0")/driver.sh"

the_module_counts() {
	load
	must pmu_tool count
}

ebbs_come() {
	load
	must ebb_counting
}

the_built_in_driver_counts() {
	unload
	must pmu_tool count
	load
}

if [ "${1-}" = after ]; then
	run_tests the_module_counts ebbs_come the_built_in_driver_counts
fi

load
# Write to the kernel log, because the end of the usual output is lost when the kernel ends.
exec >/dev/kmsg 2>&1
echo "sh $0 after" >/etc/vm/command
(cd / && find . -xdev ! -path './boot/*' ! -path './tmp/*' ! -path './run/*' | cpio -o -H newc >/tmp/initramfs)
must kexec -l /boot/vmlinux --initrd=/tmp/initramfs --command-line="$(cat /proc/cmdline)"
start_tool hold
ebb_stress --processes 8 --rounds 1000000 &
sleep 1
kexec -e

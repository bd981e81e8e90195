# SPDX-License-Identifier: GPL-2.0
"""Finds the signs of a fault in a kernel's log, or in its taint mask."""

import re

# Beginnings of the kernel's reports. The texts are those of kernel/panic.c, lib/bug.c,
# arch/powerpc/kernel/traps.c and watchdog.c, kernel/locking/lockdep.c,
# kernel/rcu/tree_stall.h, kernel/hung_task.c, kernel/watchdog.c, fs/sysfs/dir.c, mm/slub.c,
# mm/page_poison.c, lib/debugobjects.c and the sanitizers' report.c. Some others print only a call
# trace, or that a check was given up. The last two are the module's own messages for states that
# should be impossible. One of these is possible: group_constraint_unit_test closes the leader on
# PMC4
# of a group on POWER9, and leaves a member that counts only beside it.
REPORT = re.compile(
    rb"\b(?:WARNING|BUG|KASAN|KCSAN|KFENCE|UBSAN): "
    rb"|kernel BUG at "
    rb"|\bOops: |\bOops\[#"
    rb"|Kernel panic - not syncing"
    rb"|INFO: (?:possible|suspicious|inconsistent|trying to register) "
    rb"|INFO: task .* blocked for more than"
    rb"|INFO: rcu_\w+ .*(?:stall|detected)"
    rb"|self-detected stall"
    rb"|[Hh]ard LOCKUP|soft lockup"
    rb"|Unrecoverable .* [Ee]xception"
    rb"|\bBUG \S+ \(.*\): "
    rb"|pagealloc: (?:memory corruption|single bit error)"
    rb"|(?:list_add|list_del) corruption"
    rb"|cannot create duplicate filename"
    rb"|\bCall Trace:"
    rb"|ODEBUG: Out of memory"
    rb"|turning off the locking correctness validator"
    rb"|ebb_pmu: PM interrupts are masked while others are on"
    rb"|ebb_pmu: scheduled events do not fit: "
    rb"|ebb_pmu: the built-in PMU could not be registered again"
)

# Bits of /proc/sys/kernel/tainted with the same meanings, in case the report itself was not found
# (Documentation/admin-guide/tainted-kernels.rst).
TAINTS = {5: "bad page", 7: "oops", 9: "warning", 14: "soft lockup"}


def complaint(log, taint):
    """Returns the first report in the console's output, or else the meaning of the taint mask."""
    # The console ends its lines with "\r\n".
    for line in log.replace(b"\r", b"").splitlines():
        if REPORT.search(line):
            return line.strip().decode(errors="replace")
    meanings = (f"the kernel is tainted by: {text}" for bit, text in TAINTS.items() if taint >> bit & 1)
    return next(meanings, None)

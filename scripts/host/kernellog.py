# SPDX-License-Identifier: GPL-2.0
"""Find out from a kernel's messages whether it complained."""

import re

# How the kernel opens a report that something is wrong with it. The texts are
# those of kernel/panic.c, lib/bug.c, arch/powerpc/kernel/traps.c,
# kernel/locking/lockdep.c, kernel/rcu/tree_stall.h, kernel/hung_task.c,
# kernel/watchdog.c, mm/slub.c, mm/page_poison.c, lib/debugobjects.c and the
# sanitizers' report.c; the last two say that a check was given up.
REPORT = re.compile(
    rb"\b(?:WARNING|BUG|KASAN|KCSAN|KFENCE|UBSAN): "
    rb"|kernel BUG at "
    rb"|\bOops: |\bOops\[#"
    rb"|Kernel panic - not syncing"
    rb"|INFO: (?:possible|suspicious|inconsistent|trying to register) "
    rb"|INFO: task .* blocked for more than"
    rb"|INFO: rcu_\w+ .*(?:stall|detected)"
    rb"|self-detected stall"
    rb"|Hard LOCKUP|soft lockup"
    rb"|Unrecoverable .* [Ee]xception"
    rb"|\bBUG \S+ \(.*\): "
    rb"|pagealloc: (?:memory corruption|single bit error)"
    rb"|(?:list_add|list_del) corruption"
    rb"|ODEBUG: Out of memory"
    rb"|turning off the locking correctness validator"
)

# Bits of /proc/sys/kernel/tainted that mean the same, should the report itself
# not have been seen (Documentation/admin-guide/tainted-kernels.rst).
TAINTS = {5: "bad page", 7: "oops", 9: "warning", 14: "soft lockup"}


class KernelLog:
    """Splits what the console prints into lines and keeps the first report."""

    def __init__(self):
        self.report = None
        self._rest = b""

    def feed(self, data):
        """Look at the next piece of the console's output."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._line(line)

    def close(self):
        """Look at a last line that has no end."""
        self._line(self._rest)
        self._rest = b""

    def taint(self, mask):
        """Take the guest's own word on it."""
        for bit, meaning in TAINTS.items():
            if mask >> bit & 1 and self.report is None:
                self.report = f"the kernel is tainted by: {meaning}"

    def _line(self, line):
        if self.report is None and REPORT.search(line):
            self.report = line.strip().decode(errors="replace")

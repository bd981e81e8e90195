#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Report which functions and lines of the module guests have executed.

usage: coverage.py MODULE REPORT LOG...

MODULE has line tables (KRUSTFLAGS=-Cdebuginfo=1). A LOG has lines "section NAME ADDRESS" with the
module's addresses in a guest, and beside it LOG.covered is the output of `scripts/vm run
--covered`. REPORT gets, for each file of the sources, the number of its lines with code, the lines
that no guest executed, and the functions that none entered. Inlined code counts at its source line.
A summary is printed. It includes the code of interrupt handlers, which the kernel's KCOV omits.

Runs in the private root.
"""

import re
import subprocess
import sys
from bisect import bisect_right
from collections import defaultdict
from pathlib import Path

from host import elf

CROSS = "powerpc64le-linux-gnu-"
SECTION = re.compile(r"^section (\.\S+) (0x[0-9a-f]+)$", re.MULTILINE)
# A line of QEMU's log, as "0xc008000000000000:  7c0802a6  mflr r0".
INSTRUCTION = re.compile(rb"^0x([0-9a-f]{16}):", re.MULTILINE)


def filtered(tool, text, *options):
    """Returns the output of a tool of binutils for these lines."""
    command = [CROSS + tool, *options]
    return subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()


def executed(file, logs):
    """Returns the offsets of instructions that a guest has executed, by the name of their
    section."""
    sizes = {section.name: section["sh_size"] for section in elf.code(file).values()}
    found = defaultdict(set)
    for log in logs:
        bases = sorted((int(base, 16), name) for name, base in SECTION.findall(log.read_text(errors="replace")))
        bases = [(base, name) for base, name in bases if name in sizes]
        if not bases:
            sys.exit(f"coverage: {log} does not say where the module was")
        for match in INSTRUCTION.finditer(Path(f"{log}.covered").read_bytes()):
            address = int(match[1], 16)
            last = bisect_right(bases, (address, "~")) - 1
            if last >= 0 and address - bases[last][0] < sizes[bases[last][1]]:
                found[bases[last][1]].add(address - bases[last][0])
    return found


def ranges(numbers):
    """Formats numbers as in "3-5 9"."""
    runs = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return " ".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    module, report, *logs = map(Path, sys.argv[1:])
    file = elf.load(module)
    found = executed(file, logs)
    functions, missed = 0, []
    # By file: its lines with code, and those of them that were executed.
    lines, covered = defaultdict(set), defaultdict(set)
    for index, section in elf.code(file).items():
        if section.name.startswith((".init", ".exit")):
            continue
        inside = [s for s in elf.functions(file) if s.section == index]
        offsets = [o for s in inside for o in range(s.value, s.value + s.size, 4)]
        locations = filtered("addr2line", "".join(f"{o:#x}\n" for o in offsets), "-e", module, "-j", section.name)
        for offset, location in zip(offsets, locations, strict=True):
            # A location is "rust/driver/count.rs:68 (discriminator 2)"; files of the kernel are
            # ignored.
            if match := re.search(r"(?:^|/)(rust/(?:driver|perf|power|isa207)/.*|rust/[^/]*\.rs):(\d+)", location):
                lines[match[1]].add(int(match[2]))
                if offset in found[section.name]:
                    covered[match[1]].add(int(match[2]))
        functions += len(inside)
        for function in inside:
            if not found[section.name].intersection(range(function.value, function.value + function.size, 4)):
                missed.append(function.name)
    total, done = (sum(len(found) for found in table.values()) for table in (lines, covered))
    if not done:
        sys.exit("coverage: nothing of the module was executed, or it has no line tables")
    with report.open("w") as out:
        for name in sorted(lines):
            left = ranges(lines[name] - covered[name])
            told = f"; not {left}" if left else ""
            print(f"{name}: {len(covered[name])} of {len(lines[name])} lines{told}", file=out)
        print("\nfunctions that were not entered:", file=out)
        print(*sorted(filtered("c++filt", "\n".join(missed))), sep="\n", file=out)
    print(f"coverage: {functions - len(missed)} of {functions} functions, {done} of {total} lines ({report})")


if __name__ == "__main__":
    main()

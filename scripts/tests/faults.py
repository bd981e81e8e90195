#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Make copies of the module that cannot be inserted, each for one reason.

usage: faults.py MODULE FOLDER

Writes FOLDER/NAME.ko for each fault, and prints "NAME ERRNO SPARE REASON" for it: how insmod must
fail, and the message in the kernel's log, if there is one. In a copy, a call of a kernel function
that may fail is replaced by its error value. If the module calls the function from several places
there is a copy for each, NAME-1, NAME-2, ...; all of these must fail except SPARE ones, whose calls
insmod does not reach. FOLDER/leaves.ko can be inserted, and when it is removed it leaves its
callbacks of CPU hotplug.
"""

import errno
import struct
import sys
from pathlib import Path

from host import elf

# Calls of the kernel, the value with which they fail, insmod's errno and the message in the log,
# and the number of these calls that insmod does not reach.
TAKEN_OVER = "the PMU that counts cycles cannot be taken over"
CALLS = [
    ("rust_helper_krealloc_node_align", 0, errno.ENOMEM, "", 0),
    # One of these calls grows a list of all CPUs, which already has room for all.
    ("rust_helper_kvrealloc_node_align", 0, errno.ENOMEM, "", 1),
    # This happens when all states are in use.
    ("__cpuhp_setup_state", -errno.ENOSPC, errno.ENOSPC, "", 0),
    # The kernel has no tracepoints, or no memory for one more probe.
    ("for_each_kernel_tracepoint", 0, errno.ENOENT, "the kernel cannot tell of new programs", 0),
    ("tracepoint_probe_register", -errno.ENOMEM, errno.ENOMEM, "the kernel cannot tell of new programs", 0),
    # This happens when there is another user of reserve_pmc_hardware().
    ("perf_event_create_kernel_counter", -errno.EBUSY, errno.EBUSY, TAKEN_OVER, 0),
    # One of these calls unregisters the module's own PMU, after a later step has failed.
    ("perf_pmu_unregister", -errno.EINVAL, errno.EINVAL, TAKEN_OVER, 1),
    ("perf_pmu_register", -errno.ENOMEM, errno.ENOMEM, "cannot register the PMU", 0),
]
# Functions whose calls are not changed. The first two give the built-in PMU back and remove the
# module, which must succeed. insmod does not run the third, which allocates the data of an event.
NEEDED = ("UnregisteredPmu", "cleanup_module", "event_init")

MFPVR, ANY_REGISTER = 0x7C1F42A6, 31 << 21
LOAD, R3, R4 = 0x38000000, 3 << 21, 4 << 21
BRANCHES = (16, 18, 19)
# R_PPC64_TOCSAVE, a relocation that the kernel ignores.
NO_CHANGE = 109
# A version that no POWER processor has.
PVR = 0x7777


def with_word(data, offset, word):
    """Returns these bytes with another instruction."""
    return data[:offset] + struct.pack("<I", word & 0xFFFFFFFF) + data[offset + 4 :]


class Module:
    """The bytes of the module, and the calls in its code."""

    def __init__(self, path):
        file = elf.load(path)
        self.data = file.stream.getvalue()
        self.code, self.functions = elf.code(file), list(elf.functions(file))
        self.relocations = list(elf.relocations(file))

    def calls(self, name):
        """Yields each call of a function: the offsets of its instruction and relocation in the
        file, and the caller. A caller that nothing refers to is inlined elsewhere, and never runs
        itself."""
        used = {(symbol["st_shndx"], symbol["st_value"] + r["r_addend"]) for _, r, symbol, _ in self.relocations}
        for index, relocation, symbol, row in self.relocations:
            if symbol.name == name and index in self.code:
                offset = relocation["r_offset"]
                caller = next(f for f in self.functions if f.section == index and 0 <= offset - f.value < f.size)
                if (caller.section, caller.value) in used:
                    yield self.code[index]["sh_offset"] + offset, row, caller.name


def unknown_processor(module):
    """Returns the module with a processor version that does not exist."""
    data = module.data
    for section in module.code.values():
        for number, word in enumerate(elf.words(section)):
            if word & ~ANY_REGISTER == MFPVR:
                data = with_word(data, section["sh_offset"] + 4 * number, LOAD | word & ANY_REGISTER | PVR)
    return data


def frees(data, instruction):
    """Returns whether this call of krealloc() has a new size of 0, loaded after the branch before
    it."""
    while True:
        instruction -= 4
        (word,) = struct.unpack_from("<I", data, instruction)
        if word >> 26 in BRANCHES or word & ~0xFFFF == LOAD | R4:
            return word == LOAD | R4


def failing(data, instruction, row, value):
    """Returns the module with a call replaced by this value."""
    # The second 8 bytes of a relocation are its symbol and type.
    data = data[: row + 8] + struct.pack("<Q", NO_CHANGE) + data[row + 16 :]
    return with_word(data, instruction, LOAD | R3 | value & 0xFFFF)


def faults(module):
    """Yields each copy's name and bytes, and how it must fail."""
    yield "processor", unknown_processor(module), errno.ENODEV, "no support for the processor with PVR 0x00007777", 0
    # The same module with another name, to be inserted beside it.
    yield "another", module.data.replace(b"ebb_pmu", b"ebb_pm2"), errno.EBUSY, TAKEN_OVER, 0
    for name, value, number, reason, spare in CALLS:
        places = [call for call in module.calls(name) if not any(part in call[2] for part in NEEDED)]
        if "realloc" in name:
            places = [call for call in places if not frees(module.data, call[0])]
        if not places:
            sys.exit(f"the module does not call {name}")
        for count, (instruction, row, _) in enumerate(places, 1):
            yield f"{name}-{count}", failing(module.data, instruction, row, value), number, reason, spare


def main():
    path, folder = sys.argv[1:]
    module = Module(path)
    for name, data, number, reason, spare in faults(module):
        if data == module.data:
            sys.exit(f"{path}: nothing to change for {name}")
        Path(folder, f"{name}.ko").write_bytes(data)
        print(name, errno.errorcode[number], spare, reason)
    data = module.data
    for instruction, row, _ in module.calls("__cpuhp_remove_state"):
        data = failing(data, instruction, row, 0)
    Path(folder, "leaves.ko").write_bytes(data)


if __name__ == "__main__":
    main()

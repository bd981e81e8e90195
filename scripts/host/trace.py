# SPDX-License-Identifier: GPL-2.0
"""Finds the code of a PMU driver in a guest, and counts its instructions in a trace of QEMU ("exec"
log, `scripts/vm run --trace`).

A driver's own instructions are those of its functions, of memcpy() and similar functions when the
driver calls them, and of the kernel's helpers for Rust. The driver's part for emulators, and what
that part calls, is counted apart.
"""

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from host import elf

# Objects of the built-in driver, in arch/powerpc/perf.
IN_TREE = ("core-book3s", "isa207-common", "bhrb", "generic-compat-pmu", "power*-pmu")
MEM = ("memcpy", "memcpy_power7", "memset", "memmove", "backwards_memcpy")
RUST = re.compile(r"rust_helper_|_R")
# The part of the driver that works around faults of an emulator: rust/driver/emulator.
EMULATOR = "6driver8emulator"
# The system call with which pmu_paths marks the start and the end of a section.
MARK = "sys_ppc64_personality"
HYPERCALLS = re.compile(r"plpar_hcall")
# The handlers of EBBs: functions of the library, of pmu_paths, and of ebbprof.
HANDLER = re.compile(
    r"ebb_entry|ebb_reload|ebb_bench_handler|_3ebb(7context|6thread|8progress|5entry|5fixup)"
    r"|ebbprof_sample|7handler9make_room"
)
# Address range of modules.
MODULES = (0xC008_0000_0000_0000, 0xC00A_0000_0000_0000)

# Numbers of the PMU's special purpose registers, in privileged code and in problem state.
PMU_SPRS = {*range(784, 800), *range(768, 784), 736, 737, 738, 752, 753, 754} - {777, 778, 793, 794}
BLR, CLRBHRB, HYPERCALL = 0x4E80_0020, 0x7C00_035C, 0x4400_0022


def kind_of(word):
    """Returns the kind under which an instruction is counted in addition: "" for most."""
    if word in (CLRBHRB, HYPERCALL):
        return "clrbhrb" if word == CLRBHRB else "hypercalls"
    number = (word >> 16 & 31) | (word >> 6 & 0x3E0)
    form = {339: "mfspr", 467: "mtspr"}.get(word >> 1 & 0x3FF)
    return form if form and word >> 26 == 31 and number in PMU_SPRS else ""


@dataclass
class Code:
    """A function, or a part of the module without a name."""

    start: int
    end: int
    name: str
    # own, helper (of the kernel, for Rust), mem, mark, hypervisor, handler or stub
    role: str
    words: tuple = ()

    def word(self, address):
        return self.words[(address - self.start) // 4] if self.words else 0


def functions(file, role, base=None):
    """Yields the functions of a file. A section is at its own address, or at that in `base`."""
    code = elf.code(file)
    words = {index: elf.words(section) for index, section in code.items()}
    for function in elf.functions(file):
        section = code[function.section]
        address = section["sh_addr"] if base is None else base.get(section.name)
        if address is not None and (given := role(function)):
            offset = function.value - (section["sh_addr"] if base is None else 0)
            within = words[function.section][offset // 4 : (offset + function.size) // 4]
            yield Code(address + offset, address + offset + function.size, function.name, given, within)


def in_tree_ranges(vmlinux, folder):
    """Yields where the linker has put the code of the built-in driver's objects: whole sections,
    found by functions with unique names."""
    known = defaultdict(list)
    for function in elf.functions(vmlinux):
        known[function.name].append(function.value)
    for path in sorted(path for name in IN_TREE for path in folder.glob(f"{name}.o")):
        file = elf.load(path)
        for index, section in elf.code(file).items():
            if not section.name.startswith(".text"):
                continue
            inside = [f for f in elf.functions(file) if f.section == index]
            bases = {known[f.name][0] - f.value for f in inside if len(known[f.name]) == 1}
            if inside and len(bases) != 1:
                raise ValueError(f"{path}: {section.name} is not in one piece in vmlinux")
            yield from ((base, base + section["sh_size"]) for base in bases)


def kernel_code(tree):
    """Returns the kernel's functions to count, from its vmlinux and objects."""
    vmlinux = elf.load(tree / "vmlinux")
    driver = list(in_tree_ranges(vmlinux, tree / "arch/powerpc/perf"))
    if not driver:
        raise ValueError(f"{tree}/arch/powerpc/perf has none of the built-in driver's objects")

    def role(symbol):
        if symbol.name in MEM:
            return "mem"
        if symbol.name == MARK:
            return "mark"
        if HYPERCALLS.match(symbol.name):
            return "hypervisor"
        if RUST.match(symbol.name):
            return "helper"
        if any(start <= symbol.value < end for start, end in driver):
            return "own"
        return None

    return list(functions(vmlinux, role))


def program_code(path):
    """Returns the handlers of EBBs in pmu_paths."""
    return list(functions(elf.load(path), lambda f: "handler" if HANDLER.search(f.name) else None))


def module_code(path, base):
    """Returns the module's functions, for these addresses of its sections, and the called function
    for each of its calls of MEM."""
    file = elf.load(path)
    code = list(functions(file, lambda _: "own", base))
    if not code:
        raise ValueError(f"{path}: the guest has none of its sections")
    calls = {}
    sections = elf.code(file)
    for index, relocation, symbol, _ in elf.relocations(file):
        if symbol.name in MEM and index in sections and (name := sections[index].name) in base:
            calls[base[name] + relocation["r_offset"]] = symbol.name
    return code, calls


def ranges(code):
    """Returns the addresses to trace: the code, with the gaps between neighbours, and all
    modules."""
    merged = []
    # The mark is only the first instruction of a call.
    spans = [(c.start, c.start + 4 if c.role == "mark" else c.end) for c in code]
    for start, end in sorted([*spans, MODULES]):
        if merged and start <= merged[-1][1] + 16:
            merged[-1][1] = max(end, merged[-1][1])
        else:
            merged.append([start, end])
    return ",".join(f"{start:#x}..{end - 1:#x}" for start, end in merged)


@dataclass
class Section:
    """The instructions that were executed between two marks."""

    # By function: a call of memcpy() counts for the driver that makes it.
    symbols: Counter = field(default_factory=Counter)
    # The driver's mfspr, mtspr and clrbhrb, instructions of its part for emulators, hypercalls of
    # any code, and instructions of the handler.
    kinds: Counter = field(default_factory=Counter)

    def own(self):
        """Returns the number of the driver's instructions, without those of its part for
        emulators."""
        return sum(self.symbols.values()) - self.kinds["emulator"]


class Reader:
    """Reads a trace."""

    def __init__(self, code, calls):
        self.code = sorted(code, key=lambda c: c.start)
        self.starts = [c.start for c in self.code]
        self.calls = calls
        self.mem = {c.name: c.start for c in self.code if c.role == "mem"}
        self.known = {}

    def find(self, address):
        """Returns the role, function and kind of an address, and the mem function that it calls."""
        index = bisect_right(self.starts, address) - 1
        code = self.code[index] if index >= 0 else None
        if not code or address >= code.end:
            # Code of a module outside of functions is the stubs with which it calls the kernel.
            return ("stub" if MODULES[0] <= address < MODULES[1] else "gap"), "calls' stubs", "", None
        word = code.word(address)
        call = self.calls.get(address)
        if not call and word >> 26 == 18 and word & 3 == 1 and code.role == "own":
            target = address + (word & 0x3FF_FFFC) - (0x400_0000 if word & 0x200_0000 else 0)
            # A function may have a second entry, two instructions later.
            call = next((name for name, start in self.mem.items() if target in (start, start + 8)), None)
        return code.role, code.name, kind_of(word), call

    def steps(self, lines):
        """Yields the address of each instruction that was executed."""
        last = None
        for line in lines:
            if line.startswith(b"Trace "):
                if last is not None:
                    yield last
                last = line.split(b"/", 2)[1]
            elif line.startswith(b"Stopped execution of TB chain before"):
                # An interrupt came before the instruction.
                last = None
            elif line.strip():
                raise ValueError(f"no line of a trace: {line[:80].decode(errors='replace')!r}")
        if last is not None:
            yield last

    def sections(self, lines):
        """Yields a section for each pair of marks: the first and the second, the third and the
        fourth ..."""
        section, called, inside, emulator = None, None, False, False
        for text in self.steps(lines):
            if not (found := self.known.get(text)):
                found = self.known[text] = self.find(int(text, 16))
            role, name, kind, call = found
            if role == "mark":
                if section:
                    yield section
                section = None if section else Section()
                inside = False
            elif not section:
                continue
            elif role == "mem":
                inside = inside or called == name
                if inside:
                    section.symbols[name] += 1
            else:
                if role in ("own", "helper", "stub"):
                    section.symbols[name] += 1
                    # Helpers and stubs count for the function that called them last.
                    emulator = EMULATOR in name if role == "own" else emulator
                    if emulator:
                        section.kinds["emulator"] += 1
                    elif kind:
                        section.kinds[kind] += 1
                elif role == "handler":
                    section.kinds["handler"] += 1
                elif role == "hypervisor" and kind:
                    section.kinds[kind] += 1
                called = call or (called if role == "stub" else None)
                inside = False
        if section:
            raise ValueError("the trace ends within a section")

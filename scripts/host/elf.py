# SPDX-License-Identifier: GPL-2.0
"""Finds the functions and instructions of an ELF file, with pyelftools."""

import struct
from collections import namedtuple
from io import BytesIO
from pathlib import Path

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile

# `section` is an index, `value` the address or, in a module, the offset in the section.
Function = namedtuple("Function", "section value size name")


def load(path):
    """Reads a file into memory and returns it parsed."""
    return ELFFile(BytesIO(Path(path).read_bytes()))


def code(elf):
    """Returns the sections of instructions by their indices."""
    sections = enumerate(elf.iter_sections())
    return {i: s for i, s in sections if s["sh_flags"] & SH_FLAGS.SHF_EXECINSTR and s["sh_type"] == "SHT_PROGBITS"}


def functions(elf):
    """Yields the functions in order. A function without a size, as in assembly, ends at the next
    one."""
    wanted = code(elf)
    symbols = [s for s in elf.get_section_by_name(".symtab").iter_symbols() if s["st_info"]["type"] == "STT_FUNC"]
    found = sorted(
        Function(s["st_shndx"], s["st_value"], s["st_size"], s.name) for s in symbols if s["st_shndx"] in wanted
    )
    for function, following in zip(found, [*found[1:], None]):
        if function.size:
            yield function
        elif following and following.section == function.section:
            yield function._replace(size=following.value - function.value)


def words(section):
    """Returns the instructions of a section."""
    data = section.data()
    return struct.unpack(f"<{len(data) // 4}I", data[: len(data) // 4 * 4])


def relocations(elf):
    """Yields each relocation: its section's index, the relocation, its symbol, and its offset in
    the file."""
    symbols = list(elf.get_section_by_name(".symtab").iter_symbols())
    for table in elf.iter_sections("SHT_RELA"):
        for number, relocation in enumerate(table.iter_relocations()):
            row = table["sh_offset"] + number * table["sh_entsize"]
            yield table["sh_info"], relocation, symbols[relocation["r_info_sym"]], row

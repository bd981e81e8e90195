# SPDX-License-Identifier: GPL-2.0
"""Read what of an ELF file tells instructions apart: sections, symbols, relocations.
Files are 64-bit and little-endian."""

import struct
from collections import namedtuple
from pathlib import Path

SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
RELOCATION = struct.Struct("<QQq")

EXECUTABLE = 4  # SHF_EXECINSTR
SYMTAB, RELA, NOBITS = 2, 4, 8
FUNCTION = 2  # STT_FUNC

Section = namedtuple("Section", "name kind flags address offset size link info")
Symbol = namedtuple("Symbol", "name kind section value size")


class Elf:
    """The parts of one file."""

    def __init__(self, path):
        self.path = Path(path)
        self.data = self.path.read_bytes()
        if self.data[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path} is no little-endian ELF file of 64 bits")
        (start,) = struct.unpack_from("<Q", self.data, 0x28)
        count, names = struct.unpack_from("<HH", self.data, 0x3C)
        rows = [SECTION.unpack_from(self.data, start + i * SECTION.size) for i in range(count)]
        self.sections = [Section(self.text(rows[names][4] + row[0]), *row[1:8]) for row in rows]
        self.symbols = list(self.read_symbols())

    def text(self, offset):
        """The string at an offset of the file."""
        return self.data[offset : self.data.index(b"\0", offset)].decode()

    def read_symbols(self):
        """The symbol table, or nothing if it was stripped."""
        for table in self.sections:
            if table.kind == SYMTAB:
                strings = self.sections[table.link].offset
                rows = SYMBOL.iter_unpack(self.data[table.offset : table.offset + table.size])
                for name, info, _, section, value, size in rows:
                    yield Symbol(self.text(strings + name), info & 15, section, value, size)

    def functions(self):
        """Symbols of code. One without a size, as assembly has them, ends at the next."""
        found = sorted((s for s in self.symbols if s.kind == FUNCTION), key=lambda s: (s.section, s.value))
        for symbol, following in zip(found, [*found[1:], None]):
            if symbol.size:
                yield symbol
            elif following and following.section == symbol.section:
                yield symbol._replace(size=following.value - symbol.value)

    def code(self):
        """By their indices, the sections of instructions."""
        wanted = ((i, s) for i, s in enumerate(self.sections) if s.flags & EXECUTABLE and s.kind != NOBITS)
        return {i: s for i, s in wanted if s.size}

    def words(self, section):
        """The instructions of a section."""
        data = self.data[section.offset : section.offset + section.size // 4 * 4]
        return struct.unpack(f"<{len(data) // 4}I", data)

    def relocations(self, index):
        """The offset and the symbol's name of each relocation of a section."""
        for table in self.sections:
            if table.kind == RELA and table.info == index:
                rows = RELOCATION.iter_unpack(self.data[table.offset : table.offset + table.size])
                for offset, info, _ in rows:
                    yield offset, self.symbols[info >> 32].name

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Compare structures as the headers of a kernel declare them with those of the kernel itself.

usage: btf.py HEADERS KERNEL

Both are files of type information (BTF), or ELF files that hold it: HEADERS of an object that was
compiled with the headers, KERNEL of a vmlinux or /sys/kernel/btf/vmlinux. Prints the names of the
structures, unions and enumerations that differ, and exits with 1 if there are any. Skips types that
the kernel's information lacks: the kernel's own code does not use them.
"""

import struct
import sys
from collections import defaultdict
from functools import lru_cache
from pathlib import Path

MAGIC = 0xEB9F
INT, PTR, ARRAY, STRUCT, UNION, ENUM, FWD, TYPEDEF, VOLATILE, CONST, RESTRICT = range(1, 12)
FUNC, FUNC_PROTO, VAR, DATASEC, FLOAT, DECL_TAG, TYPE_TAG, ENUM64 = range(12, 20)
# Types with the layout of the type that they refer to.
ALIASES = (TYPEDEF, VOLATILE, CONST, RESTRICT, TYPE_TAG)
WORDS = {STRUCT: "struct", UNION: "union", ENUM: "enum", ENUM64: "enum"}
# Bytes after the head of an entry of each kind, and bytes of each of its members.
TAILS = {INT: (4, 0), ARRAY: (12, 0), STRUCT: (0, 12), UNION: (0, 12), ENUM: (0, 8), FUNC_PROTO: (0, 8)}
TAILS |= {VAR: (4, 0), DATASEC: (0, 12), DECL_TAG: (4, 0), ENUM64: (0, 12)}


def section(data, name):
    """Returns the contents of a section of a 64-bit little-endian ELF file."""
    (offset,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    heads = [struct.unpack_from("<IIQQQQ", data, offset + i * size) for i in range(count)]
    for head in heads:
        start = heads[names][4] + head[0]
        if data[start : data.index(0, start)] == name:
            return data[head[4] : head[4] + head[5]]
    return b""


class Types:
    """The types of one file."""

    def __init__(self, path):
        data = Path(path).read_bytes()
        if data[:4] == b"\x7fELF":
            data = section(data, b".BTF")
        if len(data) < 24 or struct.unpack_from("<H", data)[0] != MAGIC:
            sys.exit(f"error: {path} has no type information (BTF)")
        head, start, size, strings, length = struct.unpack_from("<IIIII", data, 4)
        self.strings = data[head + strings : head + strings + length]
        # A type is its name, kind, flag, number of members, size or type, and the rest of its entry.
        self.types = [("", 0, 0, 0, 0, b"")]
        position, end = head + start, head + start + size
        while position < end:
            name, info, value = struct.unpack_from("<III", data, position)
            kind, count = info >> 24 & 0x1F, info & 0xFFFF
            fixed, each = TAILS.get(kind, (0, 0))
            following = position + 12 + fixed + each * count
            self.types.append((self.text(name), kind, info >> 31, count, value, data[position + 12 : following]))
            position = following
        self.named = defaultdict(set)
        for number, (name, kind, *_) in enumerate(self.types):
            if name and kind in WORDS:
                self.named[WORDS[kind], name].add(number)
        self.shape = lru_cache(None)(self.shape)

    def text(self, offset):
        """Returns a name."""
        return self.strings[offset : self.strings.index(0, offset)].decode()

    def layout(self, number):
        """Returns the layout of a structure, union or enumeration."""
        _, kind, flag, count, size, rest = self.types[number]
        if kind == ENUM:
            return size, tuple((self.text(n), v) for n, v in struct.iter_unpack("<II", rest))
        if kind == ENUM64:
            return size, tuple((self.text(n), high << 32 | v) for n, v, high in struct.iter_unpack("<III", rest))
        members = []
        for name, of, offset in struct.iter_unpack("<III", rest):
            bits, offset = (offset >> 24, offset & 0xFFFFFF) if flag else (0, offset)
            members.append((self.text(name), offset, bits, self.shape(of)))
        return kind, size, tuple(members)

    def shape(self, number):
        """Returns what the layout of a structure depends on in a member's type."""
        name, kind, _, _, value, rest = self.types[number]
        if kind in ALIASES:
            return self.shape(value)
        if kind == ARRAY:
            of, _, count = struct.unpack("<III", rest)
            element = self.shape(of)
            # Some encoders have one dimension where others have more.
            if isinstance(element, tuple) and element[0] == "array":
                count, element = count * element[1], element[2]
            return "array", count, element
        if kind in (STRUCT, UNION):
            # A structure with a name is compared on its own.
            return (WORDS[kind], name, value) if name else self.layout(number)
        if kind in (ENUM, ENUM64, INT, FLOAT):
            return "number", value
        return "pointer" if kind == PTR else kind


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    ours, theirs = map(Types, sys.argv[1:])
    both = sorted(ours.named.keys() & theirs.named.keys())
    differing = []
    for key in both:
        known = {theirs.layout(number) for number in theirs.named[key]}
        if any(ours.layout(number) not in known for number in ours.named[key]):
            differing.append(" ".join(key))
    print(*differing, sep="\n", end="\n" if differing else "")
    print(f"{len(both)} types compared, {len(differing)} differ", file=sys.stderr)
    return int(bool(differing) or not both)


if __name__ == "__main__":
    sys.exit(main())

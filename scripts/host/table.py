# SPDX-License-Identifier: GPL-2.0
"""Reads scripts/tables: each row is a line with fields between "|"; lines with "#" are comments."""

import sys
from fnmatch import fnmatchcase

from host.steps import TABLES


def rows(name, count):
    """Returns the fields of each row of a table. The last field may hold a "|"."""
    found = []
    for line in (TABLES / name).read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            fields = [field.strip() for field in line.split("|", count - 1)]
            if len(fields) != count:
                sys.exit(f"{name}: a row has {count} fields: {line}")
            found.append(fields)
    return found


def match(name, patterns):
    """Returns whether the name matches one of these shell patterns, which are separated by
    blanks."""
    return any(fnmatchcase(name, pattern) for pattern in patterns.split())

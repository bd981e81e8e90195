# SPDX-License-Identifier: GPL-2.0
"""The tables in scripts/: a row a line with fields between "|", and comments after "#"."""

import sys
from fnmatch import fnmatchcase


def rows(path, count):
    """The fields of each row; the last field may hold a "|"."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            fields = [field.strip() for field in line.split("|", count - 1)]
            if len(fields) != count:
                sys.exit(f"{path}: {count} fields are wanted: {line}")
            found.append(fields)
    return found


def match(name, patterns):
    """Whether one of these patterns of a shell, separated by blanks, is that of the name."""
    return any(fnmatchcase(name, pattern) for pattern in patterns.split())

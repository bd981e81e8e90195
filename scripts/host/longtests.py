# SPDX-License-Identifier: GPL-2.0
"""Which steps of scripts/check are `make check-long`'s, and whether these were green with
the sources as they are: scripts/long-green, a committed file, has the sources' hash."""

import hashlib
import os
import sys
from pathlib import Path

import table
from steps import SCRIPTS, TOP

LIST = SCRIPTS / "long-tests"
GREEN = SCRIPTS / "long-green"
# All that the long steps test, run or are built from, as the manual's examples are.
SOURCES = ("Documentation/man", "Kbuild", "Makefile", "include", "rust", "rustfmt.toml", "scripts", "tools")
# What a build leaves among them, as .gitignore has it.
MADE = (".o", ".ko", ".mod", ".mod.c", ".cmd", ".d", ".pyc", "_generated.rs")


def names():
    """The steps of scripts/long-tests by their names, which have to be told with a reason."""
    found = []
    for name, cpus, reason in table.rows(LIST, 3):
        if not reason:
            sys.exit(f"long-tests: no reason for {name}")
        found += [f"{name} on {cpu}" for cpu in cpus.split()] or [name]
    if twice := {name for name in found if found.count(name) > 1}:
        sys.exit(f"long-tests: {', '.join(sorted(twice))} twice")
    return set(found)


def files():
    """The sources, in an order that is the same everywhere."""
    for source in SOURCES:
        if (TOP / source).is_file():
            yield TOP / source
        for here, folders, found in os.walk(TOP / source):
            folders[:] = sorted(set(folders) - {"target", "__pycache__"})
            for name in sorted(found):
                if not name.endswith(MADE) and not name.startswith(".tmp_") and Path(here, name) != GREEN:
                    yield Path(here, name)


def sources_hash():
    """A hash of the sources, with their names and whether they are programs."""
    total = hashlib.sha256()
    for path in files():
        kind = "link" if path.is_symlink() else "program" if os.access(path, os.X_OK) else "file"
        data = os.readlink(path).encode() if kind == "link" else path.read_bytes()
        total.update(f"{kind} {path.relative_to(TOP)} {len(data)}\n".encode() + data)
    return total.hexdigest()


def are_green():
    return GREEN.is_file() and GREEN.read_text(encoding="utf-8").split() == [sources_hash()]


def set_green():
    GREEN.write_text(sources_hash() + "\n", encoding="utf-8")

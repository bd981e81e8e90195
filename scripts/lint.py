#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Check the form of the sources, or format all Rust. Runs in the private root.

usage: lint.py [CHECK]...     all checks, if none is named
       lint.py --fix

rustfmt     Rust is formatted by rustfmt, with a line for each imported name in rust/;
            --fix formats it
layout      rust/ has 100 columns, a file in Rust states its purpose, each `unsafe`
            has its SAFETY comment, and no source has more than 1,000 lines
shellcheck  shell scripts
checkpatch  C and the kernel patches are in the kernel's style
codespell   words are spelt right, except for those of scripts/tables/codespell-words
prose       documents and comments have none of the patterns in scripts/tables/prose-patterns
links       links in documents lead to a file, and to a heading of it; sources name
            documents that exist

EBB_CACHE/lint has a hash of each file in which rustfmt or checkpatch found no fault. Such a file
is not checked again.
"""

import difflib
import hashlib
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from host import table
from host.steps import CACHE, TOP, cached

DOCUMENTS = ("*.md", "Documentation/*.md", "rust/**/*.md", "tools/**/*.md")
# The files whose prose is checked, besides the comments of all sources.
PROSE = (*DOCUMENTS, "Documentation/man/*", "scripts/tables/*", "tools/testing/mutants/*", "Makefile", "Kbuild")
SOURCES = ("rs", "c", "h", "S", "cc", "sh", "py")
MAN = (".1", ".3", ".7")
# A document that a comment names.
PAGE = re.compile(r"\b(?:Documentation|rust|tools)/[\w/]+\.md\b")
FOLDERS = ("rust", "tools", "include", "scripts", ".ci", "Documentation")
LINES = 1000
COLUMNS = 100
# The first lines of a shell script.
SHELL = re.compile(rb"#!/bin/(ba)?sh\n|#!/usr/bin/env bash\n|(#.*\n)*# shellcheck shell=|#!/bin/busybox sh\n")
IMPORT = re.compile(r"^[ \t]*(?:pub(?:\([a-z: ]+\))? )?use [^;]*;", re.MULTILINE)
COMMENT = re.compile(r'\s*(//|#(?![!\[])|/?\*|""")|.*\s// ')
UNSAFE = re.compile(r"unsafe *(\{|impl)")


def sources(*kinds):
    """Yields the sources with these suffixes. A shell script may lack the suffix "sh". Generated
    files are no sources."""
    for folder in FOLDERS:
        for here, folders, names in os.walk(folder):
            folders[:] = sorted(set(folders) - {"target", "__pycache__"})
            for path in (Path(here, name) for name in sorted(names)):
                kind = path.suffix[1:]
                if kind in ("", "sh"):
                    kind = "sh" if SHELL.match(path.read_bytes()[:1000]) else ""
                if kind in kinds and not path.stem.endswith("_generated"):
                    yield path


def run(*command, **options):
    """Runs a command; returns its exit status and its output."""
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "check": False}
    done = subprocess.run(command, **both, **options)
    return done.returncode, done.stdout


class Known:
    """The sources in which a tool found no fault before, by a hash of everything that affects its
    result."""

    def __init__(self, *tool):
        self.folder = CACHE / "lint"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.tool = repr(tool).encode() + Path(__file__).read_bytes()

    def marker(self, path):
        return self.folder / hashlib.sha256(self.tool + str(path).encode() + b"\0" + path.read_bytes()).hexdigest()

    def __contains__(self, path):
        return self.marker(path).exists()

    def add(self, path):
        self.marker(path).touch()


def vertical(match):
    """Returns an import with a line for each name in its braces. The empty comment after the last
    name makes rustfmt keep the lines."""
    text = match[0].replace(" //\n", "\n")
    if "{" not in text or "//" in text:
        return match[0]
    text = re.sub(r",?\s*\}", "}", text)
    text = re.sub(r"([{,])\s*", r"\1\n", text)
    return text.replace("}", ", //\n}")


def rustfmt(fix=False):
    """Yields the differences to rustfmt's form. It reads standard input: rustfmt would otherwise
    follow `mod` into generated files."""

    known = Known(run("rustfmt", "--version"), run("rustfmt", "--print-config", "current", "."))
    for path in sources("rs"):
        if path in known:
            continue
        text = path.read_text(encoding="utf-8")
        # rust/ uses the kernel's edition, and the kernel's style of imports.
        kernel = path.parts[0] == "rust"
        edition, given = ("2021", IMPORT.sub(vertical, text)) if kernel else ("2024", text)
        status, said = run("rustfmt", "--edition", edition, input=given)
        if status:
            yield said.replace("<stdin>", str(path))
        elif said != text and fix:
            path.write_text(said, encoding="utf-8")
            print(f"formatted {path}")
        elif said == text:
            known.add(path)
        else:
            lines = (text.splitlines(), said.splitlines())
            yield from difflib.unified_diff(*lines, str(path), "formatted", lineterm="")


def layout():
    """Yields faults that rustfmt does not find."""
    for path in sources("rs"):
        lines = path.read_text(encoding="utf-8").splitlines()
        if not any(line.startswith("//!") for line in lines[:4]):
            yield f"{path}: does not say in its first four lines what it is for (//!)"
        for number, line in enumerate(lines):
            near = lines[max(number - 3, 0) : number + 1]
            if UNSAFE.search(line) and not any("SAFETY" in line for line in near):
                yield f"{path}:{number + 1}: no SAFETY comment within three lines of `unsafe`"
            if path.parts[0] == "rust" and len(line) > COLUMNS:
                yield f"{path}:{number + 1}: {len(line)} columns"
    for path in sources("rs", "c", "h", "sh", "py"):
        if (count := path.read_bytes().count(b"\n")) > LINES:
            yield f"{path}: {count} lines"


def shellcheck():
    return [run("shellcheck", *sources("sh"))[1]]


def checkpatch():
    command = [cached("kernel") / "scripts/checkpatch.pl", "--no-tree", "--strict", "--terse", "--show-types"]
    # A label in assembly cannot be declared in a header.
    command += ["--quiet", "--ignore", "AVOID_EXTERNS"]

    known = Known(command)
    for path in sources("c", "h", "patch"):
        if path in known:
            continue
        # From standard input: checkpatch treats a file that git knows as a source.
        given = ["-"] if path.suffix == ".patch" else ["--file", path]
        status, said = run(*command, *given, input=path.read_text(encoding="utf-8"))
        if status:
            yield re.sub("^-:", f"{path}:", said, flags=re.MULTILINE)
        else:
            known.add(path)
    # checkpatch caches the mixed-case names of headers in this folder.
    for left in Path().glob(".checkpatch-camelcase.*"):
        left.unlink()


def codespell():
    """Yields the words that are misspelt."""
    words = ",".join(word for word, _ in table.rows("codespell-words", 2))
    skipped = "target,__pycache__,*_generated.rs,*.lock,*.mod.c,*.png"
    paths = [*FOLDERS, *Path().glob("*.md"), "Makefile", "Kbuild"]
    yield run("codespell", f"--ignore-words-list={words}", f"--skip={skipped}", *paths)[1]


def files(globs):
    """Returns the files that match one of the patterns, except for those that a build made."""
    return sorted({path for glob in globs for path in Path().glob(glob) if "target" not in path.parts})


def prose_lines(path):
    """Yields the number and the text of each line of a document outside of code, or of each comment."""
    fenced = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if path.suffix == ".md":
            fenced ^= line.startswith("```")
            is_prose = not fenced and not line.startswith("    ")
        elif path.suffix in MAN:
            fenced = line.startswith(".Bd -literal") or fenced and line != ".Ed"
            is_prose = not fenced
        elif path.suffix == ".mutants":
            # A line with bars has the mutant's name.
            is_prose = not line.startswith(("-", "+", " ")) and " | " not in line
        elif path.suffix == ".py":
            # A docstring may have several lines.
            ends = line.count('"""')
            is_prose = fenced or ends or COMMENT.match(line)
            fenced ^= ends == 1
        else:
            is_prose = COMMENT.match(line)
        if is_prose:
            yield number, line


def prose():
    """Yields the lines with a pattern that makes English hard to read, unless they are exceptions."""
    patterns = [(advice, re.compile(pattern)) for advice, pattern in table.rows("prose-patterns", 2)]
    exceptions = {(file, text): reason for file, text, reason in table.rows("prose-exceptions", 3)}
    needed = set()
    for path in sorted({*files(PROSE), *sources(*SOURCES)} - {Path("scripts/tables/prose-patterns")}):
        for number, line in prose_lines(path):
            excepted = {(file, text) for file, text in exceptions if file == str(path) and text in line}
            for advice in (advice for advice, pattern in patterns if pattern.search(line)):
                if not excepted:
                    yield f"{path}:{number}: {advice}: {line.strip()}"
                needed |= excepted
    for key, reason in exceptions.items():
        if not reason or key not in needed:
            yield f"prose-exceptions: no reason, or no line needs it: {' | '.join(key)}"


def anchors(path):
    """Returns the anchors of a document's headings, as GitHub names them."""
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links():
    """Yields the links of documents that lead to no file or heading, and documents that do not exist."""
    for path in files(DOCUMENTS):
        for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
            if "://" in link:
                continue
            name, _, anchor = link.partition("#")
            target = path.parent / name if name else path
            if not target.exists() or anchor and anchor not in anchors(target):
                yield f"{path}: leads nowhere: {link}"
    for path in sources("rs", "c", "h", "sh", "py"):
        for name in PAGE.findall(path.read_text(encoding="utf-8")):
            if not Path(name).exists():
                yield f"{path}: no such document: {name}"


def main():
    os.chdir(TOP)
    checks = {check.__name__: check for check in (rustfmt, layout, shellcheck, checkpatch, codespell, prose, links)}
    known = {**checks, "--fix": lambda: rustfmt(fix=True)}
    names = sys.argv[1:] or checks
    if unknown := set(names) - set(known):
        sys.exit(f"lint: no check '{' '.join(sorted(unknown))}'\n{__doc__}")
    with ThreadPoolExecutor() as pool:
        bad = [text for texts in pool.map(lambda name: list(known[name]()), names) for text in texts if text]
    print(*bad, sep="\n", end="\n" if bad else "")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())

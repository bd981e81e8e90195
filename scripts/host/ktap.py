#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Read KTAP, the kernel's test output (Documentation/dev-tools/ktap.rst).

Nested output is told by its indentation. What counts are the innermost tests:
a program that nests the results of its tests is not one more test.
"""

import re
from dataclasses import dataclass, field

VERSION = re.compile(r"KTAP version \d+$")
PLAN = re.compile(r"1\.\.(\d+)(?:\s+#\s*skip\b.*)?$", re.IGNORECASE)
RESULT = re.compile(r"(not ok|ok)\s+(\d+)\s*(?:-\s+)?(.*)$")
DIRECTIVE = re.compile(r"\s*#\s*(skip|xfail|todo)\b\s*(.*)$", re.IGNORECASE)
SUBTEST = re.compile(r"#\s*Subtest:\s*(.*)$")

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclass
class Result:
    """One test: its name with those it is nested in, and how it ended."""

    name: str
    outcome: str
    note: str = ""


@dataclass
class _Level:
    """The results seen so far at one indentation."""

    planned: int | None = None
    seen: int = 0
    subtest: str = ""
    results: list = field(default_factory=list)

    def close(self):
        """All results, with a failure for each planned test that has none, and one
        if nobody knows how many there should be."""
        results = list(self.results)
        if self.seen and self.planned is None:
            results.append(Result("plan", FAILED, "there is none, so tests may be missing"))
        elif self.seen > (self.planned or 0):
            results.append(Result("plan", FAILED, f"{self.seen} results of {self.planned} tests"))
        for number in range(self.seen + 1, (self.planned or 0) + 1):
            name = self.subtest if number == self.seen + 1 and self.subtest else f"test {number}"
            results.append(Result(name, FAILED, "planned, but there is no result"))
        return results


def parse(text):
    """Return the Results of the tests in `text`, innermost ones only."""
    levels = {}
    for raw in text.splitlines():
        line = raw.strip()
        indent = len(raw.expandtabs()) - len(raw.expandtabs().lstrip())
        if VERSION.match(line):
            # One output may follow another; one deeper begins below this level.
            _restart(levels, indent)
        elif match := PLAN.match(line):
            levels.setdefault(indent, _Level()).planned = int(match[1])
        elif match := SUBTEST.match(line):
            levels.setdefault(indent, _Level()).subtest = match[1].strip()
        elif match := RESULT.match(line):
            level = levels.setdefault(indent, _Level())
            inner = _take_deeper(levels, indent)
            level.seen += 1
            level.subtest = ""
            level.results += _judge(match[1] == "ok", match[3], inner)
    rest = _take_deeper(levels, -1, keep_names=True)
    return rest


def _restart(levels, indent):
    """Keep the results of the output that ended, as of tests of no other."""
    if indent in levels and levels[indent].seen:
        levels[indent] = _Level(results=_take_deeper(levels, indent - 1, keep_names=True))


def _judge(ok, description, inner):
    """The results that one result line stands for."""
    directive = DIRECTIVE.search(description)
    name, note = description.strip(), ""
    if directive:
        name, note = description[: directive.start()].strip(), directive[2].strip()
    if not inner:
        skipped = directive and directive[1].lower() == "skip"
        expected = directive and not skipped
        outcome = SKIPPED if skipped or (expected and not ok) else PASSED if ok else FAILED
        return [Result(name, outcome, note)]
    results = [Result(f"{name}: {r.name}", r.outcome, r.note) for r in inner]
    if not ok and all(r.outcome != FAILED for r in inner):
        results.append(Result(name, FAILED, "failed as a whole"))
    return results


def _take_deeper(levels, indent, keep_names=False):
    """Remove the levels deeper than `indent`; return their results.

    At the end of the text (keep_names) a level that is still open belongs to
    the subtest announced above it, which then has no result of its own.
    """
    inner = []
    for depth in sorted((d for d in levels if d > indent), reverse=True):
        level = levels.pop(depth)
        if inner and keep_names:
            name = level.subtest or f"test {level.seen + 1}"
            level.results += [Result(f"{name}: {r.name}", r.outcome, r.note) for r in inner]
            level.results.append(Result(name, FAILED, "did not end"))
            level.seen += 1
            level.subtest = ""
            inner = []
        inner += level.close()
    return inner

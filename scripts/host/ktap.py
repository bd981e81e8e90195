# SPDX-License-Identifier: GPL-2.0
"""Reads KTAP, the kernel's test output (Documentation/dev-tools/ktap.rst).

Indentation shows how output is nested. Only the innermost tests count: a program that
nests the results of its tests is not a test itself.
"""

import re
from collections import defaultdict
from dataclasses import dataclass, field, replace

# The kernel's kselftest.h prints TAP.
VERSION = re.compile(r"K?TAP version \d+$")
PLAN = re.compile(r"1\.\.(\d+)(?:\s+#\s*skip\b.*)?$", re.IGNORECASE)
DIRECTIVE = r"(?:#\s*(?P<mark>(?i:skip|xfail|todo))\b\s*(?P<note>.*))?"
RESULT = re.compile(rf"(not ok|ok)\s+\d+\s*(?:-\s+)?(?P<name>.*?)\s*{DIRECTIVE}$")
SUBTEST = re.compile(r"#\s*Subtest:\s*(.*)$")

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclass
class Result:
    """One test: its name with those of the tests around it, its outcome, and the output since the
    previous result."""

    name: str
    outcome: str
    note: str = ""
    said: str = ""


@dataclass
class Level:
    """The results so far at one level of indentation."""

    planned: int | None = None
    seen: int = 0
    subtest: str = ""
    results: list = field(default_factory=list)

    def add(self, results):
        """Adds the results of one more test."""
        self.seen += 1
        self.subtest = ""
        self.results += results

    def end(self):
        """Returns all results, with a failure for each planned test without a result, and one if
        there is no plan."""
        planned = self.planned or 0
        if self.seen and self.planned is None:
            self.results.append(Result("plan", FAILED, "there is none, so tests may be missing"))
        elif self.seen > planned:
            self.results.append(Result("plan", FAILED, f"{self.seen} results of {planned} tests"))
        for number in range(self.seen + 1, planned + 1):
            name = self.subtest if number == self.seen + 1 and self.subtest else f"test {number}"
            self.results.append(Result(name, FAILED, "planned, but there is no result"))
        return self.results


def failed(results):
    """Returns whether any of these failed."""
    return any(result.outcome == FAILED for result in results)


def tally(results):
    """Returns the numbers of these that passed, failed and were skipped, as text."""
    outcomes = [result.outcome for result in results]
    return ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in (PASSED, FAILED, SKIPPED))


def within(name, results):
    """Returns these results with the name of the surrounding test in front of theirs."""
    return [replace(r, name=f"{name}: {r.name}") for r in results]


def parse(text):
    """Returns the results of the tests in `text`, only the innermost ones."""
    levels = defaultdict(Level)
    said = []
    for raw in text.expandtabs().splitlines():
        line = raw.strip()
        indent = len(raw) - len(raw.lstrip())
        if VERSION.match(line):
            # The output of another program may follow, whose tests have other parents.
            if indent in levels and levels[indent].seen:
                levels[indent] = Level(results=end_deeper(levels, indent - 1, cut=True))
        elif match := PLAN.match(line):
            levels[indent].planned = int(match[1])
        elif match := SUBTEST.match(line):
            levels[indent].subtest = match[1].strip()
        elif match := RESULT.match(line):
            inner = end_deeper(levels, indent)
            announced = levels[indent].subtest == match["name"]
            levels[indent].add(judge(match, inner, announced, "\n".join(said)))
            said = []
        else:
            said.append(raw)
    return end_deeper(levels, -1, cut=True)


def outputs(text):
    """Returns the results of each output that has any: several programs print one after the
    other."""
    parts = re.split(r"^(?=K?TAP version \d+\s*$)", text, flags=re.MULTILINE)
    return [results for part in parts if (results := parse(part))]


def judge(match, inner, announced, said):
    """Returns the results of one result line: the nested ones, of which an announced subtest must
    have some, or that of the line itself."""
    ok, name, mark = match[1] == "ok", match["name"], (match["mark"] or "").lower()
    if not inner and announced and ok and not mark:
        return [Result(name, FAILED, "no test ran in it")]
    if not inner:
        skipped = mark == "skip" or (mark and not ok)
        outcome = SKIPPED if skipped else PASSED if ok else FAILED
        return [Result(name, outcome, match["note"] or "", said)]
    whole = [] if ok or failed(inner) else [Result(name, FAILED, "failed as a whole", said)]
    return within(name, inner) + whole


def end_deeper(levels, indent, cut=False):
    """Removes the levels deeper than `indent`; returns their results. If the output was cut, a
    level that is still open belongs to the subtest announced above it."""
    inner = []
    for depth in sorted((d for d in levels if d > indent), reverse=True):
        level = levels.pop(depth)
        if inner and cut:
            name = level.subtest or f"test {level.seen + 1}"
            level.add([*within(name, inner), Result(name, FAILED, "did not end")])
            inner = []
        inner += level.end()
    return inner

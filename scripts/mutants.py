#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Break the driver, one line at a time, and check that a test fails.

A file of tools/testing/mutants/ has the mutants of a layer, with an empty line after each:

    NAME | FILE | TEST               the source, and the test that must fail
    What it breaks.
    -lines of the source             that occur once in it, with " " before unchanged ones
    +lines that replace them         another change of the same source follows after "@@"

The tests:

    model [NAME]...            tests of tools/model/tests/driver with such names
    isa207 TARGET [NAME]...    tests of rust/isa207/tests/TARGET
    rtl                        the model against RTL
    kunit NAME                 a KUnit test, in a POWER10 guest
    guest CPU [--OPTION]... COMMAND
                               a program of tools/testing/selftests, in a guest with options of
                               scripts/vm
    misuse                     wrong uses of rust/perf and rust/power, which must not compile

A test runs first without a mutant, and must pass. Then each mutant is applied to a copy of the
sources in EBB_CACHE, and built. The output of each run is in EBB_CACHE/log/mutants-*. Runs in
the private root (`make mutants`). Exit status 0: every mutant was killed.
"""

import argparse
import functools
import itertools
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from host import ktap, steps
from host.steps import CACHE, SCRIPTS, TOP

FOLDER = TOP / "tools/testing/mutants"
COPY = CACHE / "target/mutants"
COPIED = ["Kbuild", "include", "rust", "scripts/kernel-mode", "tools"]
# With a mutant a test may never end: limits for a process in seconds of CPU time, and in seconds by
# the clock if it waits.
CPU_LIMIT, LIMIT = 300, 3600
TIME_UP = 124

KILLED, SURVIVED = "killed", "SURVIVED"


class Broken(Exception):
    """A mutant has no result: it does not apply or build, or its test fails without it."""


@dataclass
class Mutant:
    """A change of a source, and the test that must fail with it."""

    name: str
    file: str
    test: tuple
    changes: list

    @classmethod
    def read_all(cls, path):
        """Yields the mutants of a file."""
        for block in path.read_text(encoding="utf-8").strip().split("\n\n"):
            if found := re.fullmatch(r"(\S+) \| (\S+) \| (.+)\n(?:[^-+ @].*\n)+((?:[-+ @].*\n)+)", f"{block}\n"):
                name, file, test, changes = found.groups()
                kind, *words = shlex.split(test)
                if kind not in KINDS or len(words) < KINDS[kind].least:
                    sys.exit(f"{path}: no such test: {test}")
                yield cls(name, file, (kind, *words), changes.split("@@\n"))
            elif not block.startswith("#"):
                sys.exit(f"{path}: no mutant: {block}")

    def apply(self, tree):
        """Returns the source in a tree, without and with the change."""
        text = before = (tree / self.file).read_text(encoding="utf-8")
        for change in self.changes:
            lines = change.splitlines()
            old, new = ("".join(f"\n{line[1:]}" for line in lines if line[0] in kinds) for kinds in ("- ", "+ "))
            parts = re.split(f"{re.escape(old)}(?=\n)", f"\n{text}")
            if len(parts) != 2:
                raise Broken(f"does not apply: {len(parts) - 1} times in {self.file}:{old}")
            text = new.join(parts)[1:]
        return before, text

    @contextmanager
    def in_place(self):
        """Applies the change to the copy during a `with` block."""
        before, text = self.apply(COPY)
        try:
            (COPY / self.file).write_text(text, encoding="utf-8")
            yield
        finally:
            (COPY / self.file).write_text(before, encoding="utf-8")


class Cargo:
    """Tests that cargo runs on the host."""

    def __init__(self, least, words):
        self.least, self.words = least, words

    def commands(self, arguments):
        """Returns the commands that build and run the tests. A build takes longer than the run with
        most mutants.
        It has a folder of its own: otherwise cargo would use objects with a mutant for the
        checkout."""
        quick = ["profile.dev.package.pmu-model.opt-level=0", "profile.dev.debug=false"]
        options = ["--target-dir", COPY / "target", *(word for value in quick for word in ("--config", value))]
        return [[SCRIPTS / "cargo", "host", "test", *options, *self.words(arguments)]]

    def judge(self, _arguments, status, text):
        """Returns whether the tests pass. They fail only if the line of a test shows that. If they
        end with a panic in a callback or a signal, there is no such line, and the result is
        None."""
        ran = sum(int(count) for count in re.findall(r"^running (\d+) tests?$", text, re.MULTILINE))
        if ran and status == 0:
            return True
        return False if re.search(r"^test .* FAILED$", text, re.MULTILINE) else None


def model(names):
    """Returns the arguments for tests of the driver on the model."""
    return ["--manifest-path", COPY / "tools/Cargo.toml", "-p", "pmu-model", "--test", "driver", "--", *names]


def isa207(arguments):
    """Returns the arguments for tests of the folder isa207."""
    target, *names = arguments
    return ["--manifest-path", COPY / "rust/isa207/Cargo.toml", "--test", target, "--", *names]


def rtl(_arguments):
    """Returns the arguments for the test of the folder rtl."""
    return ["--manifest-path", COPY / "tools/Cargo.toml", "-p", "pmu-model", "--test", "rtl", "--", "--include-ignored"]


class Guest:
    """A test in a guest."""

    def __init__(self, least, variables, words):
        self.least, self.variables, self.words = least, variables, words

    def commands(self, arguments):
        """Returns the commands that build the module and run the test."""
        tree = steps.cached("kernel")
        tools = [SCRIPTS / "cargo", "tools", "build", "--release"]
        vm = ["env", f"EBB_MODULE={COPY / 'ebb_pmu.ko'}", SCRIPTS / "vm", "run", *self.words(arguments)]
        return [tools, [SCRIPTS / "kbuild", tree, COPY, "modules", *self.variables], vm]


class Kunit(Guest):
    """A KUnit test."""

    def judge(self, arguments, _status, text):
        """Judges by the line of the test."""
        found = [r for r in ktap.parse(text) if r.name.split(": ")[-1] == arguments[0]]
        return not ktap.failed(found) if found else None


class Program(Guest):
    """A program of the selftests."""

    def judge(self, _arguments, status, text):
        """Judges by the lines of its tests, or by the status of scripts/vm if the guest's kernel
        warned."""
        if status == 125:
            return False
        results = ktap.parse(text)
        return status == 0 if results else None


class Misuse:
    """Wrong uses that the compiler must refuse."""

    least = 0

    def commands(self, _arguments):
        """Returns the command that compiles them."""
        return [["env", f"EBB_SOURCES={COPY}", SCRIPTS / "tests/test-misuse"]]

    def judge(self, _arguments, status, text):
        """Judges by their lines. If the right uses do not compile either, there is no result."""
        right = [result for result in ktap.parse(text) if result.name == "right uses compile"]
        return status == 0 if right and not ktap.failed(right) else None


def kunit(_arguments):
    """Returns the arguments of scripts/vm for a guest that prints KUnit's results."""
    return ["--cpu", "power10", "--", "sh", "-c", "cat /sys/kernel/debug/kunit/ebb_pmu_*/results"]


def program(arguments):
    """Returns the arguments of scripts/vm for a guest that runs a program."""
    cpu, *words = arguments
    options = list(itertools.takewhile(lambda word: word.startswith("--"), words))
    name, *rest = words[len(options) :]
    return ["--cpu", cpu, *options, "--program", name, "--", name, *rest]


KINDS = {
    "model": Cargo(0, model),
    "isa207": Cargo(1, isa207),
    "rtl": Cargo(0, rtl),
    "kunit": Kunit(1, ["EBB_KUNIT=1"], kunit),
    "guest": Program(2, ["EBB_KUNIT="], program),
    "misuse": Misuse(),
}


def copy_sources():
    """Updates the copy. A source that has changed gets the present time, so that it is built again.
    Results of builds remain."""
    kinds = [f"--include=*{suffix}" for suffix in ("/", ".rs", ".toml", ".lock", ".c", ".h", ".S", ".vhdl")]
    left_out = ["--exclude=*_generated*", "--exclude=LICENSE*"]
    options = ["--recursive", "--relative", "--checksum", "--delete", *left_out, *kinds, "--exclude=*.*"]
    subprocess.run(["rsync", *options, *COPIED, f"{COPY}/"], cwd=TOP, check=True)


def run(command, output):
    """Runs a command. Returns its exit status, or TIME_UP if it was killed."""
    limits = functools.partial(resource.setrlimit, resource.RLIMIT_CPU, (CPU_LIMIT, CPU_LIMIT))
    options = {"cwd": TOP, "stdout": output, "stderr": subprocess.STDOUT, "preexec_fn": limits}
    with steps.running(command, **options) as process:
        try:
            return process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return TIME_UP


def passes(test, log):
    """Builds and runs a test. Returns whether it passes; raises Broken if there is nothing to
    run."""
    kind, *arguments = test
    with open(log, "w+", encoding="utf-8", errors="replace") as output:
        *builds, last = KINDS[kind].commands(arguments)
        for command in builds:
            if run(command, output):
                raise Broken("does not build")
        status = run(last, output)
        output.seek(0)
        text = output.read()
    if status == TIME_UP:
        raise Broken("takes too long")
    passed = KINDS[kind].judge(arguments, status, text)
    if passed is None:
        raise Broken("does not build" if "could not compile" in text else "no test gives a result")
    return passed


def try_mutant(mutant, tested, folder):
    """Returns whether a mutant is killed. `tested` has the results of tests without a mutant."""
    if mutant.test not in tested:
        log = folder / f"without-{len(tested)}.log"
        tested[mutant.test] = passes(mutant.test, log)
    if not tested[mutant.test]:
        raise Broken("its test fails without it")
    with mutant.in_place():
        return SURVIVED if passes(mutant.test, folder / f"{mutant.name}.log") else KILLED


def check(mutants):
    """Prints KTAP: whether each mutant applies."""
    print(f"KTAP version 1\n1..{len(mutants)}")
    bad = 0
    for number, mutant in enumerate(mutants, 1):
        try:
            mutant.apply(TOP)
            print(f"ok {number} {mutant.name}")
        except (Broken, OSError) as fault:
            bad += 1
            print(f"# {fault}".replace("\n", "\n# "), f"not ok {number} {mutant.name}", sep="\n")
    return int(bad > 0 or not mutants)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only see whether each applies (KTAP)")
    parser.add_argument("names", nargs="*", help="of mutants; all if there is none")
    options = parser.parse_args()
    mutants = [mutant for path in sorted(FOLDER.glob("*.mutants")) for mutant in Mutant.read_all(path)]
    names = Counter(mutant.name for mutant in mutants)
    if wrong := {name for name in names if names[name] > 1} | set(options.names) - set(names):
        sys.exit(f"mutants: none, or more than one, of the name: {' '.join(sorted(wrong))}")
    if options.names:
        mutants = [mutant for mutant in mutants if mutant.name in options.names]
    if options.check:
        return check(mutants)

    # As many as in `make check`. Most mutants are killed after a few thousand.
    os.environ.setdefault("MODEL_STEPS", "400000")
    if any(mutant.test[0] == "rtl" for mutant in mutants):
        os.environ["PMU_RTL"] = str(steps.cached("rtl"))
    steps.end_on_signals()
    folder = steps.new_log_folder("mutants")
    print(f"logs: {folder}", flush=True)
    COPY.mkdir(parents=True, exist_ok=True)
    copy_sources()
    tested, outcomes = {}, []
    try:
        # Mutants of one kind in a row, because they share most of the build.
        for mutant in sorted(mutants, key=lambda mutant: (list(KINDS).index(mutant.test[0]), mutant.name)):
            start = time.monotonic()
            try:
                outcome = try_mutant(mutant, tested, folder)
            except Broken as broken:
                outcome = f"BROKEN: {broken}"
            outcomes.append(outcome)
            seconds = time.monotonic() - start
            print(f"  {mutant.name:<40} {shlex.join(mutant.test):<44} {seconds:4.0f} s  {outcome}", flush=True)
    finally:
        steps.stop_all()
    counts = Counter(outcome.partition(":")[0].lower() for outcome in outcomes)
    print(f"\n{', '.join(f'{counts[word]} {word}' for word in ('killed', 'survived', 'broken'))}")
    return int(not outcomes or counts["killed"] != len(outcomes))


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Run the kernel's own PMU selftests under this driver, or under the built-in one too.

A guest runs one suite on one CPU under one driver. Each test must have the outcome that
scripts/tables/conformance-expected lists, or pass if it is not listed there. With --compare
the tests that pass with the built-in driver must pass with this one instead. The exit status
is 1 if a test has another outcome, or if the guest's kernel reported a fault under this driver.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from select import select

from host import steps, table
from host.ktap import FAILED, PASSED, SKIPPED, Result, tally
from host.steps import SCRIPTS

CPUS = ["power8", "power9", "power10", "power11"]
SUITES = ["base", "event_code_tests", "sampling_tests", "ebb"]
DRIVERS = ["in-tree", "rust"]
# The exit status that guest/run-selftests reports for a test that ran out of time.
HUNG = 124

# Module parameters for a test, in a guest of its own. This test expects the driver to refuse
# filters that the CPU lacks.
PARAMETERS = {"bhrb_filter_map_test": "strict_filters=1"}

# Output of guest/run-selftests: the start of a test, the test's output, and the end.
BEGIN = re.compile(r"^@begin (\S+)$", re.MULTILINE)
TEST = re.compile(r"^@begin (\S+)\n(.*?)^@end \1 (\d+) (\S+)$", re.MULTILINE | re.DOTALL)


def judge(test, status, output):
    """Returns the result of a test with this exit status and output.

    The harness of the powerpc selftests exits with 0 for a test that was skipped
    and reports that in its output; other selftests exit with 4.
    """

    def first(*starts):
        return next((line.strip() for line in output.splitlines() if line.startswith(starts)), "")

    if status == HUNG:
        return Result(test, FAILED, "no end by the guest's clock")
    if status == 4 or (status == 0 and first("skip: ")):
        return Result(test, SKIPPED, first("[SKIP]"))
    if status == 0:
        return Result(test, PASSED)
    return Result(test, FAILED, first("[FAIL]", "!!", "Child: died") or f"exit status {status}")


@dataclass
class Run:
    """One suite on one CPU under one driver, in as many guests as it takes."""

    cpu: str
    suite: str
    driver: str
    folder: Path
    tests: list
    options: argparse.Namespace
    # By test: its result, and seconds on the guest's clock.
    results: dict = field(default_factory=dict)
    seconds: dict = field(default_factory=dict)
    # Reports of the guest's kernel.
    reports: list = field(default_factory=list)

    def __post_init__(self):
        self.name = f"{self.cpu} {self.suite} {self.driver}"

    def run(self):
        """Runs all tests. A guest that dies ends only one of them."""
        start = time.monotonic()
        while left := [test for test in self.tests if test not in self.results]:
            params = self.params(left[0])
            left = [test for test in left if self.params(test) == params]
            output, reason = self.boot(left, params)
            for test, said, status, seconds in TEST.findall(output):
                self.results[test] = judge(test, int(status), said)
                self.seconds[test] = float(seconds)
            # The guest died of the test that began last. If none began, no guest started.
            for test in BEGIN.findall(output)[-1:] or left:
                self.results.setdefault(test, Result(test, FAILED, reason or "the guest ended"))
        print(f"  {self.name:<36} {time.monotonic() - start:6.0f} s   {tally(self.results.values())}", file=sys.stderr)

    def params(self, test):
        """Returns the parameters of the module for this test."""
        return PARAMETERS.get(test, "") if self.driver == "rust" else ""

    def boot(self, tests, params):
        """Boots a guest that runs these tests. Returns its output and the complaint of
        scripts/vm."""
        command = [SCRIPTS / "vm", "run", "--cpu", self.cpu, "--driver", self.driver]
        command += ["--paranoid", "2", "--timeout", "0"]
        command += ["--params", params] if params else []
        command += ["--qemu", self.options.qemu] if self.options.qemu else []
        command += ["--add", f"{self.folder}:/root/pmu", "--add", SCRIPTS / "guest/run-selftests"]
        command += ["--", "run-selftests", "/root/pmu", self.options.guest_limit, *tests]
        log = self.options.logs / f"{self.name.replace(' ', '-')}-{len(self.results)}.log"
        kernel = log.with_suffix(".kernel")
        with open(log, "wb", 0) as out, open(kernel, "wb") as errors:
            with steps.running(command, stdout=subprocess.PIPE, stderr=errors) as guest:
                data = b"nothing yet"
                while data and select([guest.stdout], [], [], self.options.limit)[0]:
                    data = os.read(guest.stdout.fileno(), 1 << 16)
                    out.write(data)
                if data:
                    guest.terminate()
        complaint = "; ".join(re.findall("^vm: *(.*)", kernel.read_text(errors="replace"), re.MULTILINE))
        if data:
            complaint = f"nothing new for {self.options.limit} s"
        elif guest.returncode == 125:
            self.reports.append(complaint)
        return log.read_text(errors="replace"), complaint


class Expected:
    """The outcomes that scripts/tables/conformance-expected lists, each with its reason."""

    def __init__(self, known, parser):
        self.rows = table.rows("conformance-expected", 4)
        for tests, cpus, outcome, _ in self.rows:
            stale = [test for test in tests.split() if not any(table.match(name, test) for name in known)]
            if stale or set(cpus.split()) - set(CPUS) or outcome not in (FAILED, SKIPPED):
                parser.error(f"conformance-expected: {' '.join(stale) or cpus + ' | ' + outcome}")

    def judge(self, cpu, result):
        """Returns whether this result is a fault of this driver, and a comment."""
        found = [(o, r) for tests, cpus, o, r in self.rows if table.match(result.name, tests) and cpu in cpus.split()]
        outcome, reason = found[0] if found else (PASSED, "")
        if result.outcome == outcome:
            return False, reason
        return True, f"UNEXPECTED, not {outcome}" + (result.note and f": {result.note}")


def compare(theirs, ours):
    """Returns whether a test's result is a fault of this driver, and a comment."""
    if theirs.outcome == PASSED and ours.outcome != PASSED:
        return True, f"WORSE: {ours.note}"
    if theirs.outcome == FAILED and ours.outcome == PASSED:
        return False, "better"
    return False, ours.note if ours.outcome == FAILED else ""


def report(groups, expected):
    """Print the table, then a line for each CPU and suite; return the exit status.

    A group has the runs of one suite on one CPU, this driver's as the last.
    """
    columns = "".join(f"{run.driver:<19}" for run in groups[0]).rstrip()
    print(f"{'test, time in the guest':<46} {columns}")
    bad, ends = False, []
    for group in groups:
        *other, ours = group
        print(f"\n{ours.cpu} {ours.suite}")
        for test in ours.tests:
            cells = "   ".join(f"{r.results[test].outcome:<7} {r.seconds.get(test, 0):6.1f} s" for r in group)
            result = ours.results[test]
            worse, comment = compare(other[0].results[test], result) if other else expected.judge(ours.cpu, result)
            print(f"  {test:<44} " + "  ".join(filter(None, (cells, ours.params(test), comment))))
            bad |= worse
        bad |= bool(ours.reports)
        ends += [f"{run.name}: the guest broke: {text}" for run in group for text in run.reports]
        # This happens if no guest could be started.
        if all(result.outcome == FAILED for result in group[0].results.values()):
            ends.append(f"{group[0].name}: no test passed or was skipped, so this proves nothing")
            bad = True
    for group in groups:
        counts = "; ".join(f"{run.driver} {tally(run.results.values())}" for run in group)
        ends.append(f"{group[0].cpu} {group[0].suite}: {counts}")
    print("", *ends, sep="\n")
    return 1 if bad else 0


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0], allow_abbrev=False)
    parser.add_argument("--cpus", nargs="*", choices=CPUS, help="default: all")
    parser.add_argument("--suites", nargs="*", choices=SUITES, help="default: all")
    parser.add_argument("--without", nargs="*", default=[], metavar="TEST", help="leave these tests out")
    parser.add_argument("--only", nargs="*", default=[], metavar="TEST", help="run no other tests than these")
    text = "run the built-in driver too: what passes there has to pass with this one"
    parser.add_argument("--compare", action="store_true", help=text)
    parser.add_argument("--qemu", default="", metavar="PATH", help="another emulator, as for scripts/vm")
    parser.add_argument("--guests", type=int, default=2, help="guests at a time (default: 2)")
    text = "seconds of a test by the guest's clock (default: 90)"
    parser.add_argument("--guest-limit", type=int, default=90, help=text)
    text = "seconds on the host that a guest may print nothing (default: 1800)"
    parser.add_argument("--limit", type=int, default=1800, help=text)
    return parser, parser.parse_args()


def find_tests(parser, options):
    """Returns each suite's folder and tests, from the entry of the cache, and their expected
    outcomes."""
    folder = steps.cached("selftests")
    suites = {suite: sorted(path.name for path in (folder / suite).iterdir()) for suite in SUITES}
    every = {test for tests in suites.values() for test in tests}
    suites = {suite: suites[suite] for suite in options.suites or SUITES}
    known = {test for tests in suites.values() for test in tests}
    only, without = set(options.only) or known, set(options.without)
    if unknown := (only | without) - known:
        parser.error(f"these suites have no test {' '.join(sorted(unknown))}")
    left = {suite: [test for test in tests if test in only - without] for suite, tests in suites.items()}
    found = {suite: (folder / suite, tests) for suite, tests in left.items() if tests}
    return found or parser.error("no test is left"), Expected(every, parser)


def main():
    parser, options = parse_arguments()
    steps.end_on_signals()
    suites, expected = find_tests(parser, options)
    options.logs = steps.new_log_folder("conformance")
    print(f"logs: {options.logs}", file=sys.stderr)
    groups = [
        [Run(cpu, suite, driver, *tests, options) for driver in DRIVERS[not options.compare :]]
        for cpu in options.cpus or CPUS
        for suite, tests in suites.items()
    ]
    steps.in_parallel(options.guests, [run.run for group in groups for run in group])
    return report(groups, expected)


if __name__ == "__main__":
    sys.exit(main())

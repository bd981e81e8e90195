#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Run the tests of the project and report the results.

usage: check.py            all steps except those of scripts/tables/long-tests (`make check`)
       check.py --long     the steps of scripts/tables/long-tests (`make check-long`)
       check.py --debug    the guest runs on the debug kernel (`make check-debug`)
       check.py --debian   the rows with `--kernel debian` (`make check-debian`)
       check.py --stock    the rows with `--kernel stock` or `stock-64k` (`make check-stock`)
       check.py [--long | --debian | --stock] --list   print the names of the steps
       check.py [KIND] --only PATTERN...     run the builds, and the steps with such names

Runs in the private root. A step is a check of the sources, a build, a host test or a guest run
of scripts/tables/guest-tests. Each has a log in EBB_CACHE/log/check-*, and a line with its
seconds, its seconds of CPU time and its tests. Exit status 0: tests ran and none failed.
"""

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from types import SimpleNamespace

from host import ktap, staging, steps, table
from host.ktap import FAILED, PASSED, SKIPPED, Result
from host.steps import CACHE, SCRIPTS, TOP, cached

# Meanings of exit statuses of scripts/vm if the guest ended before its command.
BROKEN = {
    124: "the time was up",
    125: "the guest panicked, oopsed or printed a warning",
    126: "no guest was started",
}
# A guest uses one core, and so do most builds.
STEPS_AT_ONCE = 2


# A kernel for the guests: its entry of the cache, the seconds that a guest may take on the host, a
# prefix for the command in a guest, suites of the kernel's own selftests, and guest runs that would
# test nothing on it.
PLAIN = SimpleNamespace(
    entry="kernel",
    timeout=600,
    prelude="",
    suites=["base", "event_code_tests", "sampling_tests"],
    left_out=[],
)
DEBUG = SimpleNamespace(
    entry="kernel-debug",
    timeout=3600,
    # Its checks make the kernel, and its tests, several times as slow.
    prelude="export KTAP_TIMEOUT=300 KTAP_PROGRAM_TIMEOUT=1200; ",
    # Many of sampling_tests fail on it under either driver, after minutes.
    suites=["base", "event_code_tests"],
    # The first tests only user space, and the second one's repetitions are all made in another row.
    left_out=["isa207, instructions", "takeover, some times"],
)
# The kernels that rows name with `--kernel`, with the names that scripts/module-copy has for them, by
# the option for which those rows run. All other rows are for the kernel above.
NAMED = {"--debian": {"debian": "kernel-debian"}, "--stock": {"stock": "stock-4k", "stock-64k": "stock-64k"}}


@dataclass
class Step:
    """A command, what judges its log, and what came of it."""

    name: str
    command: list
    judge: object
    results: list = field(default_factory=list)
    log: Path | None = None

    def run(self, folder):
        self.log = folder / (re.sub(r"[^\w.]+", "-", self.name) + ".log")
        start = time.monotonic()
        with open(self.log, "w+", encoding="utf-8", errors="replace") as log:
            with steps.running(self.command, cwd=TOP, stdout=log, stderr=subprocess.STDOUT) as process:
                status, used = steps.wait(process)
            log.seek(0)
            self.results = with_skips(self.name, self.judge(self.name, status, log.read()))
        seconds = time.monotonic() - start
        print(f"  {self.name:<36} {seconds:6.0f} s {used:6.0f} s   {ktap.tally(self.results)}", flush=True)


def by_status(name, status, _text):
    """Returns one test: the command's exit status."""
    return [Result(name, FAILED, f"exit status {status}") if status else Result(name, PASSED)]


def silent_build(name, status, text):
    """Judges a build, which passes if it succeeds and prints no warning."""
    warnings = re.findall(r"^.*\bwarning\b.*$", text, re.IGNORECASE | re.MULTILINE)
    if status == 0 and warnings:
        return [Result(name, FAILED, f"{len(warnings)} warnings: {warnings[0].strip()}")]
    return by_status(name, status, text)


def cargo_tests(name, status, text):
    """Judges the tests that `cargo test` names, and its exit status."""
    outcomes = {"ok": PASSED, "FAILED": FAILED, "ignored": SKIPPED}
    found = re.findall(r"^test (.+?) \.\.\. (ok|FAILED|ignored)(?:, (.*))?", text, re.MULTILINE)
    return with_status(name, status, [Result(test, outcomes[word], note) for test, word, note in found], (0,))


def ktap_tests(name, status, text, programs=1):
    """Judges the KTAP output of this number of programs, each with at least one test. The exit
    status must agree with the tests: "all were skipped" contradicts a passed test."""
    outputs = ktap.outputs(text)
    results = [result for output in outputs for result in output]
    fault = ""
    if results and not ktap.failed(results) and len(outputs) != programs:
        fault = f"tests of {len(outputs)} programs, of {programs}"
    good = (0,) if any(result.outcome == PASSED for result in results) else (0, 4)
    return with_status(name, status, results, good, fault)


def kunit_tests(name, status, text):
    """Judges the tests of KUnit's suites: each suite in rust/ must have run."""
    sources = (TOP / "rust").rglob("*.rs")
    suites = {suite for path in sources for suite in re.findall(r"kunit_tests\((\w+)\)", path.read_text())}
    results = with_status(name, status, ktap.parse(text), (0,))
    ran = {result.name.split(": ")[1] for result in results if ": " in result.name}
    missing = [Result(f"{name}: {suite}", FAILED, "no such suite ran") for suite in sorted(suites - ran)]
    return results + missing


def with_status(name, status, results, good, fault=""):
    """Adds a failure if there is a fault, or if the exit status indicates a failure that no test
    has."""
    fault = BROKEN.get(status, fault)
    if not fault and not results:
        fault = f"no test ran (exit status {status})"
    elif not fault and (status in good) == ktap.failed(results):
        fault = f"exit status {status} does not agree with the tests"
    return ktap.within(name, results) + ([Result(name, FAILED, fault)] if fault else [])


def listed_skips():
    """Returns the rows of scripts/tables/guest-skips: a step's name, patterns of tests, and the reason."""
    rows = table.rows("guest-skips", 4)
    return [
        (step, tests, reason)
        for name, cpus, tests, reason in rows
        for step in [f"{name} on {cpu}" for cpu in cpus.split()] or [name]
    ]


def with_skips(step, results):
    """Turns each skip that is not listed into a failure, and each listed test that ran, except for
    those that need not be skipped."""
    listed = [(pattern, reason) for name, tests, reason in listed_skips() if name == step for pattern in tests.split()]
    found = {result.name: result.name.removeprefix(f"{step}: ").replace(": ", ":") for result in results}
    judged = []
    for result in results:
        matching = [(p, reason) for p, reason in listed if table.match(found[result.name], p.removeprefix("~"))]
        always = [reason for pattern, reason in matching if not pattern.startswith("~")]
        if result.outcome == SKIPPED and not matching:
            result = Result(result.name, FAILED, f"skipped, which scripts/tables/guest-skips does not list: {result.note}")
        elif result.outcome == PASSED and always:
            result = Result(result.name, FAILED, f"not skipped, as scripts/tables/guest-skips has it: {always[0]}")
        judged.append(result)
    if not ktap.failed(results):
        gone = [p for p, _ in listed if not any(table.match(test, p.removeprefix("~")) for test in found.values())]
        judged += [Result(f"{step}: {pattern}", FAILED, "no test that scripts/tables/guest-skips lists") for pattern in gone]
    return judged


def script_tests(kind):
    """Yields the tests of the scripts: those that boot guests ("vm"), or the others ("test")."""
    for test in sorted((SCRIPTS / "tests").glob(f"{kind}-*")):
        yield Step(f"scripts: {test.name.removeprefix('test-')}", [test], ktap_tests)


# Crates besides rust/isa207 with tests for this machine, and files of crates that are otherwise for
# POWER only.
HOST_TESTS = ("tools/testing/selftests/ktap", "tools/model", "tools/ebbprof/ring", "tools/ebbprof/src/instruction.rs",
              "tools/ebbprof/src/perfdata/maps.rs", "tools/ebbprof/src/perfdata/output.rs", "tools/ebbprof/src/sound.rs")


def unlisted_tests():
    """Returns the files of tools/ with tests that no step runs."""
    files = [path for path in (TOP / "tools").rglob("*.rs") if re.search(r"^ *#\[test]", path.read_text(), re.MULTILINE)]
    listed = [TOP / path for path in HOST_TESTS]
    return sorted(str(file.relative_to(TOP)) for file in files if not any(file.is_relative_to(path) for path in listed))


def rtl_steps():
    """Yields the test of the model against RTL, or a skip where the RTL cannot be downloaded."""
    words = [SCRIPTS / "setup", "--print", "rtl"]
    made = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    words = [SCRIPTS / "cargo", "host", "test", "--manifest-path", TOP / "tools/model/Cargo.toml", "--test", "rtl"]
    for name, count in (("model against RTL", 30_000), ("model against RTL, longer", 1_000_000)):
        given = ["env", f"PMU_RTL={made}", f"RTL_STEPS={count}"]
        yield Step(name, [*given, *words, *(["--", "--include-ignored"] if made else [])], cargo_tests)


def source_steps():
    """Yields the checks of the sources and the tests on this machine."""
    yield Step("doc", [SCRIPTS / "doc"], by_status)
    yield from script_tests("test")
    yield Step("mutants apply", [SCRIPTS / "mutants.py", "--check"], ktap_tests)
    yield Step("mutants of isa207", [SCRIPTS / "cargo-mutants"], by_status)
    published = cached("kernel") / "tools/perf/pmu-events/arch/powerpc"
    programs = f"{cached('kernel')}/vmlinux:{cached('guest')}/busybox"
    given = ["env", f"PMU_EVENTS={published}", f"PPC64LE_PROGRAMS={programs}"]
    cargo = [SCRIPTS / "cargo", "host", "test"]
    yield Step("isa207 on the host", [*given, *cargo, "--", "--include-ignored"], cargo_tests)
    for path in HOST_TESTS:
        by_file = path.endswith(".rs")
        command = [SCRIPTS / "test-file", path] if by_file else [*cargo, "--manifest-path", TOP / path / "Cargo.toml"]
        yield Step(f"{Path(path).name} on the host", command, cargo_tests)
    yield from rtl_steps()
    yield Step("clippy", ["make", "-s", "clippy"], silent_build)


def build_steps(kernel, named):
    """Yields the builds that guests need. If one fails, no guest is booted."""
    copy = [SCRIPTS / "module-copy", kernel.entry]
    for entry in [kernel.entry, *named.values()]:
        command = [SCRIPTS / "module-copy", entry, f"check-{entry}"]
        yield Step(f"module for {entry}, from nothing", command, silent_build)
    if kernel == PLAIN:
        yield Step("module", ["make", "-s", "module"], silent_build)
    yield Step("module with KUnit", [*copy, f"kunit-{kernel.entry}", "EBB_KUNIT=1"], silent_build)
    yield Step("module in ebb mode", [*copy, f"ebb-{kernel.entry}", "EBB_MODE=ebb"], silent_build)
    yield Step("programs", ["make", "-s", "tools"], silent_build)


# A slow selftest that fails under either driver (see scripts/tables/conformance-expected). `make
# conformance` runs it.
SLOW_TEST = "mmcra_bhrb_ind_call_test"

# The kernel's EBB selftests that are fast; the others count billions of cycles.
QUICK_EBB_TESTS = """close_clears_pmcc_test cpu_event_pinned_vs_ebb_test cycles_test
ebb_on_child_test event_attributes_test fork_cleanup_test
reg_access_test regs_access_pmccext_test task_event_pinned_vs_ebb_test"""


def kernel_of(options):
    """Returns the kernel that options of scripts/vm name, or None."""
    return options[options.index("--kernel") + 1] if "--kernel" in options else None


def stock_steps(folder):
    """Yields the kernel's own EBB selftests on Debian's own kernels."""
    for name, pages in (("stock", "4k"), ("stock-64k", "64k")):
        given = ["env", f"EBB_KERNEL={cached('stock')}/{pages}/vmlinux", f"EBB_MODULE={folder / name}.ko"]
        for cpu in ("power10", "power9"):
            command = [SCRIPTS / "conformance.py", "--cpus", cpu, "--guests", "1", "--suites", "ebb"]
            yield Step(f"conformance, {name} on {cpu}", [*given, *command, "--only", *QUICK_EBB_TESTS.split()], by_status)


def guest_steps(folder, kernel):
    """Yields the steps that run in guests on every kernel: scripts/tables/guest-tests, the module's tests,
    the kernel's selftests and the demo, with programs and modules of `folder`."""

    tree = cached(kernel.entry)

    def environment(module):
        """Returns a command prefix that selects the kernel and a module for scripts/vm."""
        return ["env", f"EBB_KERNEL={tree}", f"EBB_MODULE={folder / module}.ko"]

    def guest(module, cpu, options, command):
        """Returns a run of scripts/vm with a shell command, within the kernel's limits."""
        vm = [SCRIPTS / "vm", "run", "--timeout", kernel.timeout, "--cpu", cpu, *options]
        named = kernel_of(options)
        module = "ebb" if "--mode" in options else module
        given = ["env", f"EBB_MODULE={folder / named}.ko"] if named else environment(module)
        return [*given, *vm, "--", "sh", "-c", kernel.prelude + command]

    # Long ones first, so that none runs alone at the end.
    for cpu in ("power10", "power9"):
        conformance = [*environment("check"), SCRIPTS / "conformance.py", "--cpus", cpu, "--guests", "1"]
        left_out = ["--without", SLOW_TEST] if "sampling_tests" in kernel.suites else []
        yield Step(f"conformance on {cpu}", [*conformance, "--suites", *kernel.suites, *left_out], by_status)
        ebb = ["--suites", "ebb", "--only", *QUICK_EBB_TESTS.split()]
        yield Step(f"conformance, EBB on {cpu}", [*conformance, *ebb], by_status)
    for name, cpus, options, command in table.rows("guest-tests", 4):
        skip = name in kernel.left_out or (kernel != PLAIN and "--kernel" in options.split())
        for cpu in [] if skip else cpus.split():
            selftests = ["--add", f"{folder / name}:/root/selftests"]
            words = guest("check", cpu, [*options.split(), *selftests], command)
            judge = partial(ktap_tests, programs=1 + command.count("&&"))
            yield Step(f"{name} on {cpu}", words, judge)
    results = "cat /sys/kernel/debug/kunit/ebb_pmu_*/results"
    yield Step("KUnit on power10", guest("kunit", "power10", [], results), kunit_tests)
    yield Step("demo on power10", guest("check", "power10", ["--program", "ebb-demo"], "ebb-demo"), by_status)


# Number of lines before a failure that the report shows.
LINES_SHOWN = 25


def report(done):
    """Prints the skips, the failures with their logs and the lines before them (a log may be lost
    with its machine), and the closing line."""
    for outcome in (SKIPPED, FAILED):
        for step in done:
            chosen = [result for result in step.results if result.outcome == outcome]
            end_of_log = step.log.read_text(errors="replace") if outcome == FAILED and chosen else ""
            for result in chosen:
                print(f"{outcome}: {result.name}{result.note and ' - ' + result.note}")
                if outcome == FAILED:
                    print(f"    log: {step.log}")
                    said = result.said or end_of_log
                    print("".join(f"    | {line}\n" for line in said.splitlines()[-LINES_SHOWN:]), end="")
                    end_of_log = end_of_log if result.said else ""
    results = [result for step in done for result in step.results]
    print(f"\n{ktap.tally(results)}", flush=True)
    return int(ktap.failed(results) or not any(result.outcome == PASSED for result in results))


def long_tests():
    """Returns the names of the steps that `make check-long` runs, and `make check` does not."""
    rows = table.rows("long-tests", 3)
    return {f"{name} on {cpu}" if cpu else name for name, cpus, _ in rows for cpu in cpus.split() or [""]}


def main():
    words, only = sys.argv[1:], ["*"]
    if "--only" in words:
        where = words.index("--only")
        words, only = words[:where], words[where + 1 :]
    options = set(words)
    kinds = {"--debug", "--long", *NAMED}
    if len(options & kinds) > 1 or options - kinds - {"--list"} or options == {"--debug", "--list"}:
        sys.exit(__doc__)
    kernel = DEBUG if "--debug" in options else PLAIN
    long = "--long" in options
    named = next((NAMED[option] for option in options & NAMED.keys()), {})
    steps.end_on_signals()
    known = {step.name for step in [*rtl_steps(), *guest_steps(Path(), PLAIN)]}
    if unknown := {name for name, _, _ in listed_skips()} - known:
        sys.exit(f"guest-skips: scripts/tables/guest-tests has no {', '.join(sorted(unknown))}")
    if missing := ", ".join(staging.unlisted() + unlisted_tests()):
        sys.exit(f"neither scripts/tables/guest-tests nor another list of tests has {missing}")
    start = time.monotonic()
    folder = Path() if "--list" in options else steps.new_log_folder("check")
    programs = folder / "programs"
    # Before all others: the module's build adds files among the sources that it checks.
    lint = [Step("lint", [SCRIPTS / "lint.py"], by_status)] if kernel == PLAIN else []
    sources = list(source_steps() if kernel == PLAIN else ())
    builds = list(build_steps(kernel, named))
    guests = [*(script_tests("vm") if kernel == PLAIN else ()), *guest_steps(programs, kernel)]
    if kernel == PLAIN:
        later = long_tests()
        if unknown := later - {step.name for step in sources + guests}:
            sys.exit(f"long-tests: check has no {', '.join(sorted(unknown))}")
        if named:
            lint, sources = [], []
            guests = [step for step in guests if kernel_of(step.command) in named]
            guests += stock_steps(programs) if "--stock" in options else []
        else:
            guests = [step for step in guests if not kernel_of(step.command)]
            lint, sources, guests = (
                [step for step in several if (step.name in later) == long] for several in (lint, sources, guests)
            )
    lint, sources, guests = (
        [step for step in several if any(fnmatch(step.name, pattern) for pattern in only)]
        for several in (lint, sources, guests)
    )
    if "--list" in options:
        print(*(step.name for step in lint + sources + guests), sep="\n")
        return 0
    programs.mkdir()
    print(f"logs: {folder}", flush=True)
    built = threading.Event()

    def run(several):
        for step in several:
            step.run(folder)

    def build():
        try:
            run(builds)
            if not any(ktap.failed(step.results) for step in builds):
                staging.stage(programs)
                modules = {name: f"{name}-{kernel.entry}" for name in ("check", "kunit", "ebb")}
                modules |= {name: f"check-{copy}" for name, copy in named.items()}
                for name, copy in modules.items():
                    shutil.copy(CACHE / f"target/{copy}/ebb_pmu.ko", programs / f"{name}.ko")
        finally:
            built.set()

    def boot(step):
        built.wait()
        if (programs / "kunit.ko").exists():
            step.run(folder)

    try:
        run(lint)
        # The guests' steps begin when their programs and modules are built, in parallel with the
        # remaining steps.
        tasks = [build, *(lambda step=step: run([step]) for step in sources)]
        steps.in_parallel(STEPS_AT_ONCE, [*tasks, *(lambda step=step: boot(step) for step in guests)])
        if any(ktap.failed(step.results) for step in builds):
            print("no guest is booted, as what it needs was not built")
    finally:
        steps.stop_all()
        shutil.rmtree(programs, ignore_errors=True)
    print(f"  {'all':<36} {time.monotonic() - start:6.0f} s")
    print()
    return report(lint + sources + builds + guests)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Measure what each path through the driver costs, under the built-in driver and this one.

A guest for each CPU and driver runs pmu_paths (tools/testing/selftests/paths), traced.
Whole costs are measured with the guest's clock, in which an instruction takes 1 ns; the driver's
own costs are counted in the trace (scripts/host/trace.py). All figures are for one round of a path.
EBB_CACHE/bench gets bench.md, bench.csv and symbols.csv, which has the driver's own
instructions by function. Exit status 1: a goal of scripts/tables/bench-goals is missed, or a path
fails under this driver or ends within a run. Such a path has no figures, but the others are valid.
"""

import argparse
import csv
import fnmatch
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from host import steps, trace
from host.steps import CACHE, PROGRAMS, SCRIPTS, TABLES, TOP

CPUS = ["power9", "power10"]
DRIVERS = ["in-tree", "rust"]
PROGRAM = PROGRAMS / "pmu_paths"
TICK_NS = 1e9 / 512e6
# Figures of each path, and sums of figures for goals.
FIGURES = ["whole", "own", "mfspr", "mtspr", "clrbhrb", "hypercalls", "emulator"]
SUMS = {"spr": ("mfspr", "mtspr")}
# The rows of the handler alone, which is part of these paths, with the most instructions that it
# may take.
HANDLERS = {
    "EBB": 330,
    "EBB, GPRs only": 116,
    "ebbprof, no callers": 142,
    "ebbprof, 1 caller": 160,
    "ebbprof, 17 callers": 320,
}
HANDLER = ", from entry to rfebb"
# Two of these handlers, the difference of their numbers of callers, and the most instructions for a
# caller.
CALLERS = ("ebbprof, 1 caller", "ebbprof, 17 callers", 16, 12)
# A handler, a path that takes the same sample in another way, and the least ratio of their costs.
# The last ratio is below 80: the path takes 17,144 instructions, and the handler 287. The entry
# takes 113 of these, and each of 16 callers 7, which load the back chain, compare it with the last
# frame and with the stack's end, branch after each, and load and store the address.
SAMPLES = [
    ("ebbprof, no callers", "sample, ip, tid, time", 19),
    ("ebbprof, no callers", "sample by a signal", 80),
    ("ebbprof, 17 callers", "sample, 17 callers", 58),
]

COMMAND = """
for name in .text .stubs; do
	file=/sys/module/ebb_pmu/sections/$name
	[ ! -e $file ] || echo "section $name $(cat $file)"
done
note=/sys/module/ebb_pmu/notes/.note.gnu.build-id
[ ! -e $note ] || echo "build $(od -An -v -tx1 $note | tr -d ' \\n')"
exec pmu_paths "$@"
"""


class Bad(Exception):
    """The output of a guest or a table is not valid."""


@dataclass
class Cost:
    """The costs of a path under one driver, for a round: figures, and instructions by function; or
    the reason why there are none."""

    figures: dict = field(default_factory=dict)
    symbols: dict = field(default_factory=dict)
    note: str = ""
    # The path ended after the start of a run.
    cut: bool = False

    def is_bad(self):
        """Returns whether figures are lacking by an error. An unsupported path reports that before
        its first run."""
        return self.cut or self.note.startswith("fail")


def read_output(text):
    """Parses the output of pmu_paths. Returns the module's sections and its build; the runs in
    order, each as its path, rounds, ticks and ticks to be subtracted (no rounds: a run that did not
    end); and the notes on paths without figures."""
    base, build, runs, notes = {}, b"", [], {}
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        try:
            if word == "section":
                name, address = rest.split()
                base[name] = int(address, 16)
            elif word == "build":
                build = bytes.fromhex(rest)
            elif word == "run":
                rounds, ticks, less, name = rest.split(" ", 3)
                runs.append((name, int(rounds), int(ticks), int(less)))
            elif word == "drop":
                runs.append((rest, 0, 0, 0))
            elif word in ("skip", "fail"):
                name, _, reason = rest.partition(": ")
                notes[name] = f"{word}: {reason}"
            else:
                raise ValueError
        except ValueError:
            raise Bad(f"pmu_paths printed: {line}") from None
    return base, build, runs, notes


def per_round(runs, sections, notes):
    """Returns the figures of each path for a round, from the difference of a run and one with three
    times the rounds."""
    if len(sections) != len(runs):
        raise Bad(f"{len(runs)} runs, but {len(sections)} in the trace")
    begun = Counter(name for name, *_ in runs if name in notes)
    paths = {name: Cost(note=note) for name, note in notes.items()}
    for name, count in begun.items():
        paths[name] = Cost(note=f"{notes[name]} (in run {count}, left out)", cut=True)
    # No run of a path that did not end is used.
    pairs = [pair for pair in zip(runs, sections) if pair[0][0] not in notes]
    for (short, first), (long, second) in zip(pairs[::2], pairs[1::2]):
        name, rounds = short[0], long[1] - short[1]
        if name != long[0] or name in paths or rounds <= 0:
            raise Bad(f"not two runs, a short and a long one: {short}, {long}")

        def each(what):
            return (what(second) - what(first)) / rounds

        whole = (long[2] - long[3] - short[2] + short[3]) * TICK_NS / rounds
        figures = {"whole": whole, "own": each(trace.Section.own)}
        figures |= {kind: each(lambda s, kind=kind: s.kinds[kind]) for kind in FIGURES[2:]}
        symbols = {s: each(lambda section, s=s: section.symbols[s]) for s in second.symbols}
        paths[name] = Cost(figures, symbols)
        if name in HANDLERS:
            handler = each(lambda s: s.kinds["handler"])
            paths[name + HANDLER] = Cost({"whole": handler} | dict.fromkeys(FIGURES[1:], 0.0))
    if len(pairs) % 2:
        raise Bad(f"a run without its longer one: {pairs[-1][0]}")
    return paths


def measure(cpu, driver, options):
    """Boots a guest, and returns its paths."""
    tree = Path(os.environ.get("EBB_KERNEL") or steps.cached("kernel"))
    module = os.environ.get("EBB_MODULE") or TOP / "ebb_pmu.ko"
    code = trace.kernel_code(tree) + trace.program_code(PROGRAM)
    log = options.logs / f"{cpu}-{driver}.trace"
    words = [SCRIPTS / "vm", "run", "--cpu", cpu, "--driver", driver, "--timeout", options.timeout]
    words += ["--trace", f"{log}:{trace.ranges(code)}", "--add", PROGRAM]
    words += ["--", "sh", "-c", COMMAND, "sh", *options.paths]
    said, kernel = log.with_suffix(".out"), log.with_suffix(".kernel")
    with open(said, "wb") as out, open(kernel, "wb") as errors:
        with steps.running(words, stdout=out, stderr=errors) as guest:
            status = guest.wait()
    base, build, runs, notes = read_output(said.read_text(errors="replace"))
    # The built-in driver may fail in each requested path.
    if status > 1 or not (runs or notes) or (driver == "rust") != bool(base):
        raise Bad(f"{cpu} {driver}: the guest's exit status is {status}, see {said} and {kernel}")
    calls = {}
    if base:
        # If the module was built again in the meantime, the trace does not match its code.
        if not build or build not in Path(module).read_bytes():
            raise Bad(f"{cpu}: {module} is not what the guest loaded")
        functions, calls = trace.module_code(module, base)
        code += functions
    with open(log, "rb") as lines:
        paths = per_round(runs, list(trace.Reader(code, calls).sections(lines)), notes)
    if not options.keep:
        log.unlink()
    return paths


def read_goals(text, known):
    """Returns the goals: pattern of paths, figure, largest ratio. Each must match an existing
    path."""
    goals = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        try:
            pattern, figure, most = (part.strip() for part in line.split("|"))
            goal = (pattern, figure, float(most))
        except ValueError:
            raise Bad(f"no goal, which is PATHS | FIGURE | RATIO: {line}") from None
        if figure not in FIGURES and figure not in SUMS:
            raise Bad(f"there is no figure '{figure}': {line}")
        if not fnmatch.filter(known, pattern):
            raise Bad(f"no path is like '{pattern}': {line}")
        goals.append(goal)
    if not goals:
        raise Bad("there are no goals")
    return goals


def value(path, figure):
    """Returns a figure or a sum of figures, or None."""
    if not path or not path.figures:
        return None
    return sum(path.figures[name] for name in SUMS.get(figure, (figure,)))


def ratio(theirs, ours):
    """Returns the ratio of our figure to theirs, or None if there is nothing to compare."""
    if theirs is None or ours is None or (theirs < 0.5 and ours < 0.5):
        return None
    return ours / theirs if theirs >= 0.5 else float("inf")


def missed(goals, results):
    """Yields a line for each goal that a path misses."""
    for pattern, figure, most in goals:
        for cpu, (theirs, ours) in results.items():
            for name in fnmatch.filter(dict.fromkeys([*theirs, *ours]), pattern):
                a, b = value(theirs.get(name), figure), value(ours.get(name), figure)
                share = ratio(a, b)
                if a is not None and b is None:
                    yield f"{cpu} {name}: not measured, {ours[name].note if name in ours else 'gone'}"
                elif share is not None and share > most + 0.0005:
                    yield f"{cpu} {name}: {figure} {b:.0f} of {a:.0f} is {share:.3f}, at most {most}"


def too_long(results):
    """Yields a line for each handler that takes more instructions than it may."""
    for cpu, (_, ours) in results.items():
        for name, most in HANDLERS.items():
            whole = value(ours.get(name + HANDLER), "whole")
            if whole is not None and whole > most:
                yield f"{cpu} {name}{HANDLER}: {whole:.0f} instructions, at most {most}"
        few, many, callers, most = CALLERS
        few, many = (value(ours.get(name + HANDLER), "whole") for name in (few, many))
        if few is not None and many is not None and many - few > callers * most:
            yield f"{cpu} ebbprof: {(many - few) / callers:.1f} instructions for a caller, at most {most}"


def samples(results):
    """Yields for each CPU, handler and other path with the same sample: both costs, and the least
    ratio."""
    for cpu, (_, ours) in results.items():
        for name, other, least in SAMPLES:
            cost, others = value(ours.get(name + HANDLER), "whole"), value(ours.get(other), "whole")
            if cost is not None and others is not None:
                yield cpu, name, other, cost, others, least


def too_near(results):
    """Yields a line for each handler whose cost is too large compared with the other path."""
    for cpu, name, other, cost, others, least in samples(results):
        if others < cost * least:
            yield f"{cpu} {other}: {others:.0f} is {others / cost:.1f} times {name}, at least {least}"


def number(found):
    """Formats a figure."""
    return "-" if found is None else f"{found:,.1f}" if 0 < abs(found) < 20 else f"{found:,.0f}"


def markdown(results):
    """Yields the lines of the table."""
    yield "Instructions for one round of a path, whole and the driver's own; in-tree / here, ratio."
    for cpu, (theirs, ours) in results.items():
        yield f"\n## {cpu}\n"
        yield "| path | whole | | own | | mfspr | mtspr | clrbhrb | hypercalls | emulator |"
        yield "|---|---|---|---|---|---|---|---|---|---|"
        for name in dict.fromkeys([*ours, *theirs]):
            cells = [name]
            for figure in FIGURES:
                a, b = value(theirs.get(name), figure), value(ours.get(name), figure)
                cells.append(f"{number(a)} / {number(b)}" if figure != "emulator" else number(b))
                if figure in ("whole", "own"):
                    share = ratio(a, b)
                    cells.append("-" if share is None else f"{share:.2f}")
            yield f"| {' | '.join(cells)} |"
        for driver, paths in zip(DRIVERS, (theirs, ours)):
            yield from (f"\n{name}, {driver}: {path.note}" for name, path in paths.items() if path.note)
    if lines := list(samples(results)):
        yield "\n## A sample, in instructions\n"
        yield f"| | ebbprof{HANDLER} | | in another way, whole | | ratio |"
        yield "|---|---|---|---|---|---|"
    for cpu, name, other, cost, others, _ in lines:
        yield f"| {cpu} | {name} | {number(cost)} | {other} | {number(others)} | {others / cost:.0f} |"


def rows(results):
    """Yields the rows of bench.csv."""
    yield ["cpu", "path", "figure", *DRIVERS, "ratio"]
    for cpu, (theirs, ours) in results.items():
        for name in dict.fromkeys([*ours, *theirs]):
            for figure in [*FIGURES, *SUMS]:
                pair = [value(paths.get(name), figure) for paths in (theirs, ours)]
                share = ratio(*pair)
                cells = ["" if x is None else f"{x:.3f}" for x in (*pair, share)]
                yield [cpu, name, figure, *cells]


def demangled(names):
    """Returns the demangled names of functions, by their names."""
    names = sorted(names)
    words = [SCRIPTS / "in-root", "powerpc64le-linux-gnu-c++filt", "-i"]
    done = subprocess.run(words, input="\n".join(names), capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    return dict(zip(names, lines if len(lines) == len(names) else names))


def symbol_rows(results):
    """Yields the rows of symbols.csv."""
    yield ["cpu", "driver", "path", "function", "instructions"]
    found = [paths for pair in results.values() for paths in pair]
    plain = demangled({s for paths in found for path in paths.values() for s in path.symbols})
    for cpu, pair in results.items():
        for driver, paths in zip(DRIVERS, pair):
            for name, path in paths.items():
                for symbol, count in Counter(path.symbols).most_common():
                    if count:
                        yield [cpu, driver, name, plain[symbol], f"{count:.3f}"]


def write(results):
    """Writes the files, and returns the table."""
    folder = CACHE / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    table = "\n".join(markdown(results)) + "\n"
    (folder / "bench.md").write_text(table)
    for name, lines in (("bench.csv", rows(results)), ("symbols.csv", symbol_rows(results))):
        with open(folder / name, "w", encoding="utf-8", newline="") as out:
            csv.writer(out).writerows(lines)
    return table


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0], allow_abbrev=False)
    parser.add_argument("paths", nargs="*", metavar="PATH", help="measure these only; then there are no goals")
    # Repeated instead of a list, which would consume the paths after it, too.
    parser.add_argument("--cpu", action="append", choices=CPUS, help="may be repeated; default: both")
    parser.add_argument("--guests", type=int, default=2, help="guests at a time (default: 2)")
    parser.add_argument("--timeout", default="900", help="seconds on the host for each guest (default: 900)")
    parser.add_argument("--keep", action="store_true", help="keep the traces, in the folder of the logs")
    return parser.parse_args()


def main():
    options = parse_arguments()
    steps.end_on_signals()
    options.logs = steps.new_log_folder("bench")
    found = {}

    def run(cpu, driver):
        found[cpu, driver] = measure(cpu, driver, options)

    try:
        guests = [lambda c=cpu, d=driver: run(c, d) for cpu in options.cpu or CPUS for driver in DRIVERS]
        steps.in_parallel(options.guests, guests)
        results = {cpu: [found[cpu, driver] for driver in DRIVERS] for cpu in options.cpu or CPUS}
        print(write(results))
        bad = [f"{cpu} {name}: {path.note}" for cpu, (_, ours) in results.items()
               for name, path in ours.items() if path.is_bad()]
        bad += [*too_long(results), *too_near(results)]
        if not options.paths:
            known = {name for pair in results.values() for paths in pair for name in paths}
            goals = read_goals((TABLES / "bench-goals").read_text(encoding="utf-8"), known)
            bad += missed(goals, results)
    except (Bad, ValueError, OSError) as error:
        sys.exit(f"bench: {error}")
    print(*(f"missed: {line}" for line in bad), f"{len(bad)} missed", sep="\n")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: GPL-2.0
"""Finds the programs and scripts of tools/testing/selftests that a guest needs. For `make check`
each row of scripts/tables/guest-tests has a folder with only the files that it uses: all together
are larger than the largest initramfs of a powernv machine (128 MiB), and than half of a guest's
memory.
"""

import os
import re
import shutil
import subprocess
import tomllib

from host import table
from host.steps import PROGRAMS, SCRIPTS, TABLES, TOP

SELFTESTS = TOP / "tools/testing/selftests"
# Programs whose functions perf must show.
WITH_SYMBOLS = ("pmu_tool", "ebbprof_work", "ebbprof_calls", "ebbprof_children",
                "ebbprof_client", "ebbprof_client_static", "ebbprof_example", "ebbprof_full", "ebbprof_go",
                "ebbprof_hostile", "ebbprof_linked_to_go", "ebbprof_linked_to_ocaml", "ebbprof_ocaml", "ebbprof_parts", "ebbprof_runs",
                "ebbprof_stacks", "ebbprof_storm", "ebbprof_stripped.debug", "ebbprof_threads",
                "ebbprof_threads_static", "ebbprof_ways")


def code(path):
    """Returns the text of a script or a program without its comment lines."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith(("#", "//")))


def words(text):
    return set(re.findall(r"[\w.]+", text))


def lists():
    """Returns, by name, the texts that name programs and scripts: scripts, and programs that run a
    suite."""
    runners = {path.stem: code(path) for path in SELFTESTS.glob("*/src/bin/run_*.rs")}
    return runners | {path.name: code(path) for path in SELFTESTS.glob("*/*.sh")}


def unlisted():
    """Returns the programs and scripts that neither scripts/tables/guest-tests, `make bench` nor
    another list names."""
    names = {path.name for path in SELFTESTS.glob("*/*.sh")} | {path.stem for path in SELFTESTS.glob("*/src/bin/*")}
    names |= {path.stem for path in SELFTESTS.glob("*/*.c*") if "main(" in code(path)}
    # This program is also linked in other ways (scripts/libebb), one of which is the loader.
    if "libebb_calls" in names:
        names = (names | {"libebb_calls_shared", "libebb_calls_loaded"}) - {"libebb_loader"}
    for manifest in SELFTESTS.glob("*/Cargo.toml"):
        names |= {program["name"] for program in tomllib.loads(manifest.read_text()).get("bin", ())}
    named = {path.name: words(code(path)) for path in (TABLES / "guest-tests", SCRIPTS / "bench.py")}
    named |= {name: words(text) for name, text in lists().items()}
    return sorted(name for name in names if not any(name in found for by, found in named.items() if by != name))


def sources():
    """Returns the sources of the programs by their names, because some start others."""
    found = {path.stem: code(path) for path in SELFTESTS.glob("*/*.c*")}
    for path in SELFTESTS.glob("*/src/bin/*"):
        found[path.stem] = "\n".join(code(file) for file in ([path] if path.is_file() else path.glob("*.rs")))
    return found


def started(command):
    """Returns the words of a command and of the programs that it starts. A suite's program that
    gets the names of tests to run starts no others."""
    texts, found, new = sources() | lists(), set(), [command]
    while new:
        text = new.pop()
        for word in words(text) - found:
            found.add(word)
            if word in texts and (word.endswith(".sh") or not re.search(rf"\b{word} \w", text)):
                new.append(texts[word])
    return found


def built():
    """Returns the paths of the programs and libraries that `make tools` has built."""
    return [path for path in PROGRAMS.glob("*") if path.is_file() and os.access(path, os.X_OK)]


def needed(command, files):
    """Returns the files that a command starts, and all libraries, which are small: the sources do
    not contain the names of all libraries that programs load."""
    found = started(command)
    return [path for path in files if path.name in found or ".so" in path.name]


def find(names):
    """Returns the paths of programs and scripts with these names and of what they start."""
    files = [*built(), *SELFTESTS.glob("*/*.sh")]
    if missing := set(names) - {path.name for path in files}:
        raise LookupError(f"there is no {' '.join(sorted(missing))} (`make tools` builds the programs)")
    named = [path for path in files if path.name in names]
    return list(dict.fromkeys(named + needed(" ".join(names), files))) if names else []


def stage(folder):
    """Copies the files of each row to `folder`/ROW, because other runs may build programs in the
    meantime. Removes symbols to save space."""
    everything = folder / "everything"
    everything.mkdir()
    for script in SELFTESTS.glob("*/*.sh"):
        shutil.copy(script, everything)
    for program in built():
        keep = "-g" if program.name in WITH_SYMBOLS else "-s"
        strip = ["powerpc64le-linux-gnu-strip", keep, "-o", everything / program.name, program]
        subprocess.run(strip, check=True)
    for name, _, _, command in table.rows("guest-tests", 4):
        row = folder / name
        row.mkdir()
        for path in needed(command, everything.iterdir()):
            os.link(path, row / path.name)

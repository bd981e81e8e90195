#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Pack what a POWER machine needs for `make check-here`.

usage: here_archive.py FILE [MODULE]      (a tar.gz; runs in the private root)

The archive has the folder ebb-pmu-here: check_here.sh, all programs that it starts, and the kernel's
own EBB selftests. MODULE is added as ebb_pmu.ko. It must be built for the POWER machine's kernel: the
checkout's own ebb_pmu.ko is for the kernel of the guests.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from host import staging
from host.steps import CACHE, TOP, cached

NAME = "ebb-pmu-here"


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    archive, *modules = sys.argv[1:]
    with tempfile.TemporaryDirectory(dir=CACHE) as parent:
        folder = Path(parent, NAME)
        shutil.copytree(cached("selftests") / "ebb", folder / "kernel-selftests")
        for path in staging.find(["check_here.sh", "ebb-demo"]):
            shutil.copy(path, folder)
            if path.suffix != ".sh":
                subprocess.run(["powerpc64le-linux-gnu-strip", "-g", folder / path.name], check=True)
        shutil.copy(TOP / "LICENSE", folder)
        for module in modules:
            shutil.copy(module, folder / "ebb_pmu.ko")
        if not modules:
            print("without ebb_pmu.ko: build the module for that machine's kernel (Documentation/running.md)")
        # Without a user or group of this machine.
        command = ["tar", "--owner=0", "--group=0", "--numeric-owner", "-C", parent, "-czf", archive, NAME]
        subprocess.run(command, check=True)
        print(f"{archive}: {len(list(folder.rglob('*')))} files")


if __name__ == "__main__":
    main()

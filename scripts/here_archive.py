#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Pack what a POWER machine needs for `make check-here`.

usage: here_archive.py FILE      (a tar.gz; runs in the private root)

The archive has the folder ebb-pmu-here: check_here.sh, all programs that it starts, the kernel's
own EBB selftests, and ebb_pmu.ko if one is in the checkout.
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
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory(dir=CACHE) as parent:
        folder = Path(parent, NAME)
        shutil.copytree(cached("selftests") / "ebb", folder / "kernel-selftests")
        for path in staging.find(["check_here.sh", "ebb-demo"]):
            shutil.copy(path, folder)
            if path.suffix != ".sh":
                subprocess.run(["powerpc64le-linux-gnu-strip", "-g", folder / path.name], check=True)
        module = TOP / "ebb_pmu.ko"
        for path in [TOP / "LICENSE", *([module] if module.exists() else [])]:
            shutil.copy(path, folder)
        if not module.exists():
            print("without ebb_pmu.ko: build the module for that machine's kernel (Documentation/running.md)")
        # Without a user or group of this machine.
        command = ["tar", "--owner=0", "--group=0", "--numeric-owner", "-C", parent, "-czf", sys.argv[1], NAME]
        subprocess.run(command, check=True)
        print(f"{sys.argv[1]}: {len(list(folder.rglob('*')))} files")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Run rustdoc on the module's crate as the kernel's build system compiled it.

usage: module-doc.py DIR CRATE FOLDER

DIR is where the module was built; `.CRATE.o.cmd` under it holds the command.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path


def rustdoc_command(saved, folder):
    """Turn a saved rustc command into (environment, rustdoc command)."""
    words = shlex.split(saved)
    start = next(i for i, word in enumerate(words) if os.path.basename(word) == "rustc")
    environment = dict(word.split("=", 1) for word in words[:start])
    # What says where and in which form code goes out has no place in rustdoc.
    arguments, skip = [], False
    for word in words[start + 1 :]:
        if skip or word.startswith("--emit="):
            skip = False
        elif word == "--out-dir":
            skip = True
        else:
            arguments.append(word)
    command = ["rustdoc", *arguments, "-o", str(folder), "--document-private-items"]
    return environment, command


def main():
    built, crate, folder = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    noted = next(built.rglob(f".{crate}.o.cmd"), None)
    if noted is None:
        sys.exit(f"error: {built} holds no build of {crate}")
    saved = noted.read_text(encoding="utf-8").splitlines()[0].split(":=", 1)[1]
    environment, command = rustdoc_command(saved, folder)
    # As the kernel's Makefile does, to use what rustc calls unstable.
    environment["RUSTC_BOOTSTRAP"] = "1"
    done = subprocess.run(command, cwd=built, env=os.environ | environment, check=False)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()

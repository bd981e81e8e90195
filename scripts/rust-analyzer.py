#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Write rust-project.json, which describes the module, the programs for the guest, and isa207 with
its tests to rust-analyzer. Runs in the private root.

usage: rust-analyzer.py [FILE]

The kernel's own generator describes the kernel's crates, but does not find the module's. `cargo
metadata` describes the crates of cargo's workspaces.
"""

import json
import sys
from pathlib import Path

from host.steps import CACHE, SCRIPTS, TARGET, TOP, cached, output

LIBRARIES = (["lib"], ["proc-macro"])


def uses(crates, *names):
    """Returns the dependencies on crates of the kernel or of rustc."""
    numbers = {crate["display_name"]: number for number, crate in reversed(list(enumerate(crates)))}
    return [{"crate": numbers[name], "name": name} for name in names]


def kernel_project():
    """Returns the crates of the kernel and of rustc, whose sources are in the private root."""
    folder = CACHE / "target/rust-analyzer"
    folder.mkdir(parents=True, exist_ok=True)
    output(SCRIPTS / "kbuild", cached("kernel"), folder, "rust-analyzer")
    text = (folder / "rust-project.json").read_text(encoding="utf-8")
    return json.loads(text.replace('"/usr', f'"{cached("root")}/usr'))


def add_module(crates):
    """Returns the module's crate, with the options that the kernel's build gives every module."""
    kernel = crates[uses(crates, "kernel")[0]["crate"]]
    own = {"display_name": "ebb_pmu_main", "root_module": str(TOP / "rust/ebb_pmu_main.rs")}
    own["deps"] = uses(crates, "core", "kernel", "pin_init", "zerocopy", "zerocopy_derive")
    crates.append({key: own.get(key, value) for key, value in kernel.items() if key != "source"})


def add_workspace(crates, name):
    """Adds the crates of a workspace, named as for scripts/cargo, and their dependencies."""
    metadata = json.loads(output(SCRIPTS / "cargo", name, "metadata", "--format-version", "1"))
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    members = metadata["workspace_members"]
    targets = [
        (package["id"], target)
        for package in metadata["packages"]
        for target in package["targets"]
        if target["kind"] in LIBRARIES or package["id"] in members
    ]
    libraries = {
        package: {"crate": number, "name": target["name"]}
        for number, (package, target) in enumerate(targets, len(crates))
        if target["kind"] in LIBRARIES
    }
    for package, target in targets:
        deps = uses(crates, "core", "alloc", "std")
        # Tests and programs may use the dependencies for development, and the library beside them.
        kinds = [None] if target["kind"] in LIBRARIES else [None, "dev"]
        for dep in nodes[package]["deps"]:
            if any(kind["kind"] in kinds for kind in dep["dep_kinds"]):
                deps.append({**libraries[dep["pkg"]], "name": dep["name"]})
        if "dev" in kinds and package in libraries:
            deps.append(libraries[package])
        macro = target["kind"] == ["proc-macro"]
        own = {"display_name": target["name"].replace("-", "_"), "root_module": target["src_path"]}
        own |= {"edition": target["edition"], "deps": deps, "env": {}, "is_proc_macro": macro}
        own["cfg"] = [f'feature="{feature}"' for feature in nodes[package]["features"]]
        own["is_workspace_member"] = package in members
        crates.append({**own, "target": TARGET} if name in ("tools", "libebb", "libebbprof") and not macro else own)


def main():
    project = kernel_project()
    add_module(project["crates"])
    for name in ("tools", "libebb", "libebbprof", "host", "fuzz"):
        add_workspace(project["crates"], name)
    file = Path(sys.argv[1] if len(sys.argv) > 1 else TOP / "rust-project.json")
    file.write_text(json.dumps(project, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Check libebb: compare its exports with its header, and look for registers that it must not touch.

usage: check-abi.py [--header FILE] FOLDER OBJECT...     in the private root
       check-abi.py --handlers OBJECT...

FOLDER has libebb.a and libebb.so.0; FILE is ebb.h unless given. Prints a line for each fault and
fails, unless
- the functions of ebb.h have the types of those in src/, struct ebb_branch has its fields, and
  the constants have their values;
- the functions of ebb.h, those in the manual pages, the symbols of libebb.so.0 (all of version
  EBB_0) and those of libebb.a are the same;
- libebb.so.0 has its soname, and depends only on the C library;
- thread-local data use the initial-exec model, because __tls_get_addr may allocate;
- no function except the entry that saves all registers has an instruction on a vector or
  floating-point register;
- no function for handlers calls the C library, directly or indirectly, counting functions whose
  address it takes (allowed are abort, syscall and __errno_location, which only use general
  registers);
- the OBJECTs, which are handlers, have no such instruction either; --handlers checks only this.
"""

import re
import subprocess
import sys
from pathlib import Path

CROSS = "powerpc64le-linux-gnu-"
HERE = Path(__file__).resolve().parent
PAGES = sorted((HERE.parents[1] / "Documentation/man").glob("ebb_*.3"))
# Types of src/ and their names in ebb.h.
TYPES = {
    "": "void",
    "&EbbContext<'_>": "const struct ebb_context *",
    "&mut EbbContext<'_>": "struct ebb_context *",
    "*const Ebb": "const struct ebb *",
    "*mut Ebb": "struct ebb *",
    "*mut Branch": "struct ebb_branch *",
    "*const c_char": "const char *",
    "*mut c_char": "char *",
    "*mut c_void": "void *",
    "*mut u32": "uint32_t *",
    "*mut u64": "uint64_t *",
    "Option<RawHandler>": "ebb_handler",
    "c_int": "int",
    "c_uint": "unsigned int",
    "u32": "uint32_t",
    "u64": "uint64_t",
    "usize": "size_t",
}
# Functions that a handler may call.
FOR_HANDLERS = re.compile(
    r"ebb_context_\w+|ebb_set_resume_address|ebb_set_period|ebb_rearm|.*period.*call_due.*"
    r"|ebb_count|ebb_state|ebb_counter|ebb_fd"
)
# syscall(2) is a few instructions on general registers.
HARMLESS = {"abort", "__errno_location", "syscall"}
# Loads, stores and moves of FPRs, VRs and VSRs, also prefixed ones; decimal floating point and
# BCD; and all that begin with the same letters.
VECTOR = re.compile(
    r"^p?(l|st)f[dis]|^p?(l|st)v|^p?(l|st)x[sv]|^p?xx?v|^p?m?(dm)?xv|^dm|^p?xx|^xs|^v|^f|^m[tf]vsr|^m[tf]fs|^m[tf]vscr"
    r"|^d(add|sub|mul|div|cmp|tst|qua|rint|rrnd|ct[dfq]|cf|dedpd|enbcd|xex|iex|sc[lr]i)|^bcd"
)


def run(tool, *arguments):
    return subprocess.run([CROSS + tool, *map(str, arguments)], check=True, text=True, capture_output=True).stdout


def names(listing):
    return set(re.findall(r" [TDBRVW] ([^\s@]+)", listing))


def addresses(path):
    """Return the symbols that the entries of each member's table of contents are the addresses of."""
    entries = {}
    member = section = None
    for line in run("objdump", "-r", path).splitlines():
        if match := re.match(r"(.+):\s+file format ", line):
            member = match[1]
        elif match := re.match(r"RELOCATION RECORDS FOR \[(.+)\]:$", line):
            section = match[1]
        elif section == ".toc" and (match := re.match(r"([0-9a-f]+) R_PPC64_ADDR64\s+(\S+)", line)):
            entries[member, f".toc+{int(match[1], 16):#x}"] = match[2]
    return entries


def disassembled(path):
    """Return each function of an object: its name, its instructions, and the functions that it branches
    to or takes the address of."""
    functions = {}
    entries = addresses(path)
    member = here = None
    for line in run("objdump", "-dr", "--no-show-raw-insn", path).splitlines():
        if match := re.match(r"(.+):\s+file format ", line):
            member = match[1]
        elif match := re.match(r"[0-9a-f]+ <(.+)>:$", line):
            here = functions.setdefault(match[1], ([], set()))
        elif here and (match := re.match(r"\s+[0-9a-f]+:\s+R_PPC64_(?:REL24|TOC16)\S*\s+(\S+)", line)):
            name = re.sub(r"^\.toc$", ".toc+0x0", match[1])
            here[1].add(re.sub(r"^\.text\.|\+0x.*", "", entries.get((member, name), name)))
        elif here and (match := re.match(r"\s+[0-9a-f]+:\s+(\S+)", line)):
            here[0].append(match[1])
    return functions


def reached(functions, name):
    """Return all functions that a function calls or takes the address of, directly or indirectly."""
    found, left = set(), [name]
    while left:
        new = functions.get(left.pop(), ([], set()))[1] - found
        found |= new
        left.extend(new)
    return found


def values(constants):
    return {name: int(value, 0) for name, value in constants}


def of_header(text):
    """Return the type of each function, the fields of struct ebb_branch, and the constants."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    types = {}
    for result, name, parameters in re.findall(r"^([a-z][^;{}()]*?)(ebb_\w+)\(([^)]*)\);", text, re.MULTILINE):
        words = [re.sub(r"\b[a-z]+$", "", " ".join(word.split())) for word in parameters.split(",")]
        types[name] = [result.strip()] + [word.strip() for word in words if word]
    fields = re.search(r"^struct ebb_branch \{(.*?)\}", text, re.MULTILINE | re.DOTALL)
    constants = re.findall(r"^#define (EBB_\w+)\s+(\w+?)U?$", re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE), re.MULTILINE)
    return types, re.findall(r"(\w+)\s+(\w+);", fields[1] if fields else ""), values(constants)


def of_source():
    """Return the same as of_header() from the Rust source."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted((HERE / "src").glob("*.rs")))
    types = {}
    form = r'#\[unsafe\(no_mangle\)\]\n(?:unsafe )?extern "C" fn (\w+)\(([^)]*)\)(?: -> (.*))? \{'
    for name, parameters, result in re.findall(form, text):
        words = [word.split(":", 1)[1].strip() for word in parameters.split(",") if word.strip()]
        types[name] = [TYPES[word] for word in (result, *words)]
    fields = re.search(r"#\[repr\(C\)\]\nstruct Branch \{(.*?)\}", text, re.DOTALL)[1]
    fields = [(TYPES[kind], name) for name, kind in re.findall(r"(\w+): (\w+),", fields)]
    return types, fields, values(re.findall(r"^const (EBB_\w+): \w+ = (\w+);", text, re.MULTILINE))


def documented(page):
    """Return the functions that a manual page both names, which gives them a link, and declares."""
    named = re.findall(r"^\.Nm (\w+)", page, re.MULTILINE)
    return set(named) & set(re.findall(r"^\.Ft .*\n\.Fn (\w+)", page, re.MULTILINE))


def vectors(objects):
    for handlers in objects:
        for name, (instructions, _) in disassembled(handlers).items():
            if name != "ebb_entry_full":
                yield from (f"{handlers}: {name} has {word}" for word in instructions if VECTOR.match(word))


def faults(header, folder, *objects):
    declared, fields, constants = of_header(header.read_text(encoding="utf-8"))
    defined, true_fields, true_constants = of_source()
    for name in sorted(declared.keys() & defined.keys()):
        if declared[name] != defined[name]:
            yield f"ebb.h: {name} is of ({', '.join(declared[name])}), in src/ ({', '.join(defined[name])})"
    if fields != true_fields:
        yield f"ebb.h: struct ebb_branch has {fields}, in src/ {true_fields}"
    for name in sorted(constants.keys() | true_constants.keys()):
        value, true_value = constants.get(name), true_constants.get(name)
        if value != true_value:
            yield f"ebb.h: {name} is {value}, in src/ {true_value}"
    declared = set(declared)
    shared, static = folder / "libebb.so.0", folder / "libebb.a"
    dynamic = run("nm", "-D", "--defined-only", shared)
    for what, found in (
        ("libebb.so.0", names(dynamic)),
        ("libebb.a", names(run("nm", "-g", "--defined-only", static))),
        ("the manual", set().union(*(documented(page.read_text(encoding="utf-8")) for page in PAGES))),
    ):
        found.discard("EBB_0")
        yield from (f"{what} does not have {name}, which ebb.h declares" for name in sorted(declared - found))
        yield from (f"{what} has {name}, which ebb.h does not declare" for name in sorted(found - declared))
    for name in re.findall(r" T (\S+)$", dynamic, re.MULTILINE):
        if not name.endswith("@@EBB_0"):
            yield f"libebb.so.0: {name} is not of version EBB_0"
    tags = re.findall(r"\((SONAME|NEEDED)\).*\[(.*)\]", run("readelf", "-d", shared))
    if ("SONAME", "libebb.so.0") not in tags:
        yield "libebb.so.0: no soname"
    yield from (f"libebb.so.0 needs {of}" for tag, of in tags if tag == "NEEDED" and not of.startswith(("libc.", "ld64.")))

    yield from vectors(objects)
    functions = disassembled(static)
    if not any("call_due" in name for name in functions) or "ebb_entry_full" not in functions:
        yield "libebb.a: call_due or ebb_entry_full is not where this check looks"
    undefined = set(re.findall(r" U (\S+)", run("nm", "-u", static)))
    if "__tls_get_addr" in undefined or "STATIC_TLS" not in run("readelf", "-d", shared):
        yield "libebb: thread-local data are not reached by the initial-exec model"
    for name, (instructions, _) in sorted(functions.items()):
        bad = sorted({word for word in instructions if VECTOR.match(word)})
        if bad and name != "ebb_entry_full":
            yield f"libebb.a: {name} has {' '.join(bad)}"
        outside = reached(functions, name) & undefined - HARMLESS if FOR_HANDLERS.fullmatch(name) else ()
        if outside:
            yield f"libebb.a: {name} calls {' '.join(sorted(outside))}"


def main():
    words = sys.argv[1:]
    header = HERE / "include/ebb.h"
    if words[:1] == ["--header"]:
        header, words = Path(words[1]), words[2:]
    if words[1:] and words[0] == "--handlers":
        found = list(vectors(words[1:]))
    elif words:
        found = list(faults(header, *map(Path, words)))
    else:
        sys.exit(__doc__)
    print(*found, sep="\n", end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Check the options of scripts/vm, put a guest's files in place and boot it."""

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from host import staging, steps
from host.guest import GUEST_BROKEN, NO_GUEST, TIMED_OUT, Guest, Stop
from host.steps import SCRIPTS, TOP

IN_ROOT = SCRIPTS / "in-root"
MODULE = "/lib/modules/ebb_pmu.ko"

USAGE = """\
vm run [OPTION]... -- COMMAND [ARGUMENT]...
       vm shell [OPTION]..."""

ABOUT = """\
Boots a POWER guest (QEMU, the kernel of scripts/setup) with the module inserted.

"run" runs COMMAND in it, which is found on the PATH, /root first, or is a shell
builtin; its arguments arrive exactly as they are, so shell syntax needs "sh -c".
It runs as root in /root, without input; "su nobody -c" drops its privileges.
What it still has running when it ends is killed, and the module is removed.

"shell" gives a root shell on this terminal, which shows the kernel's messages as
well. Leave it with "exit", or at any time with Ctrl-A X.
"""

MORE = """\
environment:
  EBB_CACHE   where everything built is kept (default: .cache in the checkout)
  EBB_MODULE  the module to insert (default: ebb_pmu.ko in the checkout, which is
              made if it is missing; with another --kernel or --mode
              one made for that)
  EBB_KERNEL  a vmlinux, or a kernel tree that holds one (default: --kernel's)
  EBB_SEED    a --seed

Output of "run": stdout has what COMMAND writes to its stdout and stderr, byte for
byte, stderr has the kernel's messages and errors of vm ("vm: ...").

Exit status: that of COMMAND or the shell (128 + N if signal N ended it), or
  124  the time was up
  125  the guest panicked, oopsed or printed a WARNING, BUG or lockdep report, did
       not let the module in or out, or ended without an exit status. The path of
       the kernel's log is printed
  126  no guest was started: something could not be built or found
  2    an option is wrong or a PATH is missing; nothing was done

Examples:
  scripts/vm run -- dmesg
  scripts/vm run --perf -- perf stat -e cycles,instructions true
  scripts/vm run --cpu power9 --program ebb_close -- ebb_close
  scripts/vm run --add ./prog --add ./data:/tmp/data -- prog /tmp/data
  scripts/vm run -- sh -c 'rmmod ebb_pmu && insmod /lib/modules/ebb_pmu.ko'
"""


def matching(form, said):
    """Returns an argparse type for strings that match `form`."""

    def value(text):
        if not re.fullmatch(form, text):
            raise argparse.ArgumentTypeError(f"'{text}' is not {said}")
        return text

    return value


def addition(text):
    """Returns the path and the guest's path of an --add. A path may contain colons itself."""
    path, target = text, ""
    if ":/" in text and not os.path.exists(text):
        path, _, target = text.rpartition(":/")
        target = f"/{target}"
    if not os.path.exists(path):
        raise argparse.ArgumentTypeError(f"there is no '{path}'")
    if "/../" in f"{target}/":
        raise argparse.ArgumentTypeError(f"GUESTPATH '{target}' has '..' in it")
    name = os.path.basename(os.path.abspath(path))
    if not target:
        target = f"/root/{name}"
    elif target.endswith("/"):
        target += name
    return path, target


RANGE = r"0x[0-9a-f]+(\.\.|\+)0x[0-9a-f]+"

# Each option's default, its values, and its help.
OPTIONS = [
    ("--cpu", "power10", ["power8", "power9", "power10", "power11"], "default: power10"),
    ("--machine", "pseries", ["pseries", "powernv"], """pseries: a guest of a hypervisor (default); powernv:
        bare metal, where the kernel is the hypervisor and OPAL the firmware"""),
    ("--compat", "", ["power8", "power9"], """pseries: the CPUs are in the compatibility mode of an older
        processor, as after a migration from one: the kernel goes by its ISA. Default: none"""),
    ("--kernel", "small", ["small", "debian", "stock", "stock-64k"], """small: the kernel that the tests mostly run
        on (default); debian: one configured like Debian's, with pages of 64 KiB and built by gcc; stock, stock-64k:
        Debian's own, as its archive has them, with pages of 4 KiB and 64 KiB"""),
    ("--driver", "rust", ["rust", "in-tree"], """rust: insert the module before anything runs (default);
        in-tree: leave the PMU to the kernel's own driver. The module is at /lib/modules/ebb_pmu.ko in
        either case"""),
    ("--mode", "", ["ebb"], """ebb: insert the module in its ebb mode, which is made if it is missing. Default: the
        mode that it takes on this kernel (Documentation/modes.md)"""),
    ("--params", "", matching(r"\s*([A-Za-z_][A-Za-z0-9_-]*(=\S*)?(\s+|$))*", "NAME=VALUE, once or more"),
        """insert the module with these parameters, as "NAME=VALUE NAME=VALUE". One that it does not have is
        only mentioned in the kernel's log; a value that it refuses keeps it out (exit status 125)"""),
    ("--smp", "1", matching("[1-9]|1[0-6]", "a number from 1 to 16"), "number of CPUs, 1 to 16. Default: 1"),
    ("--mem", "1G", matching(r"(25[6-9]|2[6-9]\d|[3-9]\d\d|[1-9]\d{3,6})M|[1-9]\d{0,3}G", "a size from 256M on"),
        "memory, as 512M or 2G; at least 256M (powernv: 1G). Default: 1G"),
    ("--icount", "on", ["on", "off"], """on (default): an instruction takes 1 ns of the guest's time and idle
        time passes at once, so that a run repeats; needed where Event Based Branches are counted.
        off: the guest's clock is the host's, and CPUs run in parallel"""),
    ("--seed", os.environ.get("EBB_SEED", "1"), matching(r"\d{1,18}", "a number"), """where the kernel's random
        numbers come from with --icount on: with the same seed the same command in the same guest does the same
        to the last instruction. Default: 1, or EBB_SEED from the environment"""),
    ("--append", "", str, 'more for the kernel\'s command line, as "pmu_override=1"'),
    ("--qemu", "", str, "another qemu-system-ppc64: a program of the host or else of the private root"),
    ("--paranoid", "", [*"0123", "-1"], """set kernel.perf_event_paranoid. Default: left as the kernel has it,
        2"""),
    ("--timeout", None, matching(r"\d{1,7}", "a number of seconds"), """stop the guest after these seconds on the
        host; 0: never. Default: 300 for "run", 0 for "shell\""""),
    ("--trace", None, matching(rf"[^:]+:{RANGE}(,{RANGE})*", "FILE:RANGES"), """FILE:RANGES, as
        trace.log:0x100..0x1ff,0xc000+0x40: write a line to FILE, in EBB_CACHE or the checkout, for each
        instruction executed at these addresses (QEMU's "exec" log). The guest is ten times as slow then"""),
    ("--covered", None, matching(rf"[^:]+:{RANGE}(,{RANGE})*", "FILE:RANGES"), """FILE:RANGES, as for --trace:
        write each instruction at these addresses to FILE once, when it is executed for the first time (QEMU's
        "in_asm" log). The guest is as fast as ever"""),
    ("--gdb", None, matching(r"\d{1,5}", "a number of a port"), """wait, before the first instruction, for a gdb
        that connects to this port of the host (see CONTRIBUTING.md)"""),
]


def parse(words):
    """Returns the options, with the command after them as one more."""
    parser = argparse.ArgumentParser("vm", usage=USAGE, description=ABOUT, epilog=MORE, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("action", choices=["run", "shell"], help=argparse.SUPPRESS)
    for name, default, values, text in OPTIONS:
        kind = "choices" if isinstance(values, list) else "type"
        parser.add_argument(name, default=default, help=text, **{kind: values})
    parser.add_argument("--perf", action="store_true", help="add the perf tool")
    text = "add the shared libraries that programs in C and C++ need: loader, libc, libm, libgcc_s, libstdc++"
    parser.add_argument("--libs", action="store_true", help=text)
    text = """add Debian's packages of these names, as "gdb strace", with all that they depend on. They are
        unpacked only: what they would set up when installed is not done"""
    name = matching("[a-z0-9][a-z0-9.+-]+", "the name of a package")
    parser.add_argument("--packages", default=[], nargs="+", metavar="NAME", type=name, help=text)
    text = "add the perf tool of the kernel's source with its own tests, as /opt/perf/bin/perf, and bash"
    parser.add_argument("--perf-tests", action="store_true", help=text)
    text = "add the kernel that is booted, as /boot/vmlinux"
    parser.add_argument("--add-kernel", action="store_true", help=text)
    text = """PATH or PATH:GUESTPATH: copy a file or a folder into the guest, as /root/NAME or as the absolute
        GUESTPATH; with a "/" at its end, into that folder. May be given more than once"""
    parser.add_argument("--add", default=[], action="append", type=addition, help=text)
    text = """add programs that `make tools` builds and scripts of tools/testing/selftests to /root, with all
        that they start, and without debug information"""
    parser.add_argument("--program", default=[], nargs="+", action="extend", metavar="NAME", help=text)
    behind = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:behind])
    options.command = words[behind + 1 :]
    if options.action == "run" and not options.command:
        parser.error("no COMMAND is given")
    if options.action == "shell" and options.command:
        parser.error("shell takes no COMMAND")
    if options.action == "shell" and not os.isatty(0):
        parser.error("shell needs a terminal")
    try:
        options.program = staging.find(options.program)
    except LookupError as error:
        parser.error(f"--program: {error}")
    if options.compat and options.machine != "pseries":
        parser.error(f"--compat: {options.machine} has no compatibility modes")
    if options.trace and options.covered:
        parser.error("--trace and --covered do not go together")
    if options.params.split() and options.driver != "rust":
        parser.error("--params: no module is inserted with --driver in-tree")
    options.timeout = options.timeout or ("300" if options.action == "run" else "0")
    return options


def complain(message):
    """Prints a message of vm itself."""
    for line in str(message).splitlines():
        print(f"vm: {line}", file=sys.stderr)


def must(reason, *command):
    """Runs a command of the host, whose stdout goes to stderr; raises Stop(NO_GUEST) if it fails."""
    if subprocess.run(command, stdout=2, check=False).returncode:
        raise Stop(NO_GUEST, reason)


def copy(path, destination):
    """Copies a file, or the contents of a folder, to its place in the guest."""
    folder = os.path.isdir(path)
    os.makedirs(destination if folder else os.path.dirname(destination), exist_ok=True)
    what = ["-a", "--", f"{path}/."] if folder else ["-L", "-p", "--", path]
    must(f"--add: '{path}' could not be copied", "cp", *what, destination)


def cached(entry, name):
    """The path of a file in an entry of the cache, which is made if it is missing. A
    finished one is taken as it is: the check that scripts/setup does takes longer."""
    found = subprocess.run([SCRIPTS / "setup", "--print", entry], capture_output=True, text=True, check=False)
    if found.returncode == 0:
        return Path(found.stdout.strip(), name)
    must(f"the {entry} could not be made", SCRIPTS / "setup", entry)
    return steps.cached(entry) / name


# Each kernel's entry of the cache, and where it is in that.
KERNELS = {
    "small": ("kernel", "vmlinux"),
    "debian": ("kernel-debian", "vmlinux"),
    "stock": ("stock", "4k/vmlinux"),
    "stock-64k": ("stock", "64k/vmlinux"),
}
# Names that scripts/module-copy has for the kernels.
COPIES = {"small": "kernel", "debian": "kernel-debian", "stock": "stock-4k", "stock-64k": "stock-64k"}


def find_kernel(name):
    """The kernel to boot."""
    kernel = Path(os.environ.get("EBB_KERNEL") or cached(*KERNELS[name]))
    if kernel.is_dir():
        kernel = kernel / "vmlinux"
    if not kernel.is_file():
        raise Stop(NO_GUEST, f"there is no kernel '{kernel}'")
    return kernel.resolve()


def find_module(driver, kernel, mode):
    """The module, if there is one or if it has to be inserted."""
    given = os.environ.get("EBB_MODULE")
    if given or (kernel == "small" and not mode):
        module = Path(given or TOP / "ebb_pmu.ko")
        build = ["make", "-s", "-C", TOP, "module"]
    else:
        copy_of = COPIES[kernel]
        name, variables = (f"{copy_of}-{mode}", [f"EBB_MODE={mode}"]) if mode else (copy_of, [])
        module = steps.CACHE / f"target/{name}/ebb_pmu.ko"
        build = [SCRIPTS / "module-copy", copy_of, name, *variables]
    if driver == "rust" and not module.is_file():
        if given:
            raise Stop(NO_GUEST, f"EBB_MODULE: there is no '{module}'")
        must("the module could not be built", *build)
    return module if module.is_file() else None


FOLDERS = "bin sbin usr/bin usr/sbin usr/local/bin lib/modules usr/lib etc/vm dev proc sys tmp run mnt var/tmp root"
TEXTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    # Text at a terminal too: the full-screen viewer needs a terminal database.
    "etc/perfconfig": "[tui]\n\treport = off\n\tannotate = off\n\ttop = off\n",
}


def make_initramfs(folder, options, archives, files):
    """Make `folder`/initramfs: these archives, then an archive of these files and of
    what was asked for, as guest/init reads it."""
    root = folder / "root"
    for name in FOLDERS.split():
        (root / name).mkdir(parents=True)
    for path, target in files:
        copy(path, f"{root}{target}")
    programs = [root / "root" / path.name for path in options.program]
    for path, program in zip(options.program, programs):
        copy(path, program)
    if binaries := [program for program in programs if program.suffix != ".sh"]:
        must("debug information could not be removed", IN_ROOT, "powerpc64le-linux-gnu-strip", "-g", *binaries)
    terminal = shutil.get_terminal_size()
    settings = {"driver": options.driver, "params": options.params, "paranoid": options.paranoid}
    settings |= {"rows": terminal.lines, "columns": terminal.columns}
    texts = {**TEXTS, "etc/vm/options": "".join(f"{k}={shlex.quote(str(v))}\n" for k, v in settings.items())}
    if options.command:
        texts["etc/vm/command"] = shlex.join(options.command) + "\n"
    for name, text in texts.items():
        if not (root / name).exists():
            (root / name).write_bytes(os.fsencode(text))
    must("its initramfs could not be made", IN_ROOT, SCRIPTS / "initramfs", root, folder / "own")
    with open(folder / "initramfs", "wb") as out:
        for part in (*archives, folder / "own"):
            with open(part, "rb") as data:
                shutil.copyfileobj(data, out, 1 << 20)


def boot(options):
    """Makes what is missing, boots the guest and returns the exit status."""
    cached("root", "usr/bin/qemu-system-ppc64")
    files = [(cached("guest", "busybox"), "/bin/busybox"), (SCRIPTS / "guest/init", "/init")]
    archives = [cached("libs", "libs.cpio")] if options.libs else []
    if options.packages:
        os.environ["EBB_PACKAGES"] = " ".join(sorted(set(options.packages)))
        archives.append(cached("packages", "packages.cpio"))
    archives += [cached("perf", "perf.cpio")] if options.perf else []
    archives += [cached("perf-tests", "perf-tests.cpio")] if options.perf_tests else []
    kernel = find_kernel(options.kernel)
    if module := find_module(options.driver, options.kernel, options.mode):
        files.append((module, MODULE))
    if options.add_kernel:
        files.append((kernel, "/boot/vmlinux"))
    # A QEMU of the host runs outside of the private root, which lacks its libraries.
    qemu = [options.qemu or "qemu-system-ppc64"]
    if not (options.qemu and shutil.which(options.qemu)):
        qemu = [IN_ROOT, *qemu]
    run = steps.new_log_folder("vm")
    guest = Guest(qemu, run, options)
    kept = {}
    try:
        make_initramfs(guest.folder, options, archives, files + options.add)
        # The kernel may be in a folder that does not exist in the private root.
        shutil.copy(kernel, guest.folder / "vmlinux")
        return guest.run()
    except Stop as stop:
        kept = guest.logs() if stop.status in (TIMED_OUT, GUEST_BROKEN) else {}
        reason = "\n".join([str(stop), *(f"{name} is {path}" for name, path in kept.items())])
        raise Stop(stop.status, reason) from stop
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)
        guest.stop()
        shutil.rmtree(guest.folder if kept else run)


def time_is_up(_number, _frame):
    """Stops the guest when its time is up."""
    raise Stop(TIMED_OUT, "the guest was stopped: its time was up")


def main():
    os.umask(0o022)
    # The variable is for this program's interpreter, that of the private root.
    os.environ.pop("PYTHONHOME", None)
    options = parse(sys.argv[1:])
    steps.end_on_signals()
    signal.signal(signal.SIGALRM, time_is_up)
    try:
        return boot(options)
    except Stop as stop:
        complain(stop)
        return stop.status
    except BrokenPipeError:
        return 128 + signal.SIGPIPE
    except OSError as error:
        complain(error)
        return NO_GUEST


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: GPL-2.0
"""Runs one guest: starts QEMU, handles its consoles, and determines how the guest ended.

Kernel messages go to stderr and into console.log of the run's folder, the command's
output to stdout. guest/init reports on the third console.
"""

import contextlib
import os
import re
import select
import selectors
import signal
import socket
import subprocess
import termios

from host.kernellog import complaint

# Exit statuses, which scripts/vm --help explains.
TIMED_OUT = 124
GUEST_BROKEN = 125
NO_GUEST = 126

# Properties of a machine, if it has them. They declare mitigations of speculation that QEMU's TCG
# cannot emulate as missing.
PROPERTIES = ["cap-cfpc=broken", "cap-sbbc=broken", "cap-ibs=broken", "cap-ccf-assist=off"]

# Number of QEMU's last lines to show after it died.
SAID_LINES = 10
SAID_CHARACTERS = 2000


class Stop(Exception):
    """Ends the run with this exit status, for this reason."""

    def __init__(self, status, reason):
        super().__init__(reason)
        self.status = status


def machine_options(qemu, machine):
    """Returns the machine with the properties that this QEMU supports."""
    done = subprocess.run([*qemu, "-M", f"{machine},help"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Stop(NO_GUEST, f"{qemu[-1]} has no {machine} machine: {done.stderr.strip()}")
    options = [p for p in PROPERTIES if re.search(rf"^ *{p.split('=')[0]}=", done.stdout, re.M)]
    return ",".join([machine, *options])


def qemu_command(qemu, folder, options):
    """Returns QEMU's command line, without the consoles."""
    if options.machine == "powernv":
        # Each CPU has its own machine. Some of its default devices are necessary: the ports of the
        # PCI host bridge, and the BMC, which the firmware asks to power off.
        machine = options.cpu.replace("power", "powernv")
        devices = ["-nic", "none", "-monitor", "none", "-device", "virtio-serial-pci,bus=pcie.0"]
    else:
        machine = "pseries"
        # x-vof is a firmware that boots fast. The firmware variable makes QEMU format the NVRAM,
        # because the kernel warns of a blank one.
        devices = ["-M", "x-vof=on", "-cpu", options.cpu, "-nodefaults", "-prom-env", "auto-boot?=false"]
    compat = ["-M", f"max-cpu-compat={options.compat}"] if options.compat else []
    command = [*qemu, "-M", machine_options(qemu, machine), *compat, *devices]
    accel = "tcg"
    if options.trace:
        # QEMU logs translation blocks, so a block must be one instruction, and be entered through
        # the main loop each time.
        file, _, ranges = options.trace.rpartition(":")
        accel = "tcg,one-insn-per-tb=on"
        command += ["-d", "exec,nochain", "-dfilter", ranges, "-D", os.path.abspath(file)]
    if options.covered:
        # QEMU translates code just before it executes it for the first time.
        file, _, ranges = options.covered.rpartition(":")
        command += ["-d", "in_asm", "-dfilter", ranges, "-D", os.path.abspath(file)]
    command += ["-accel", accel, "-smp", options.smp, "-m", options.mem]
    command += ["-display", "none", "-no-reboot"]
    command += ["-kernel", folder / "vmlinux", "-initrd", folder / "initramfs"]
    # ignore_loglevel: no report may get lost if the command changes the log level.
    # panic=-1: reboot, which ends QEMU.
    words = "console=hvc0 ignore_loglevel printk.time=1 panic=-1 rdinit=/init"
    if options.machine == "powernv":
        # On POWER8 this function reads the CPU's number while it may migrate, which a debug kernel
        # reports.
        words += " initcall_blacklist=__machine_initcall_powernv_subcore_init"
    command += ["-append", f"{words} {options.append}"]
    if options.icount == "on":
        # One instruction takes 1 ns, and idle time passes at once. The host's clock and its random
        # numbers have no effect.
        command += ["-icount", "shift=0,sleep=off", "-rtc", "base=2030-01-01,clock=vm", "-seed", options.seed]
    if options.gdb:
        command += ["-gdb", f"tcp:127.0.0.1:{options.gdb}", "-S"]
    return command


class Guest:
    """A QEMU process with its consoles."""

    def __init__(self, qemu, run, options):
        self.qemu, self.options = qemu, options
        # The kernel and the initramfs; the logs are beside this folder.
        self.folder = run / "files"
        self.console_log, self.qemu_log = run / "console.log", run / "qemu.log"
        # The reports of guest/init.
        self.control = run / "control"
        for log in (self.console_log, self.qemu_log, self.control):
            log.touch()
        self.process = None

    def run(self):
        """Runs the guest to its end; returns the exit status."""
        command = qemu_command(self.qemu, self.folder, self.options)
        signal.alarm(int(self.options.timeout))
        try:
            if self.options.command:
                self.run_command(command)
            else:
                self.run_shell(command)
        except Stop as stop:
            # If a guest hangs after an oops, the oops is the reason to report.
            if stop.status != TIMED_OUT or not complaint(self.console_log.read_bytes(), 0):
                raise
        return self.result()

    def run_command(self, command):
        """Runs QEMU, and copies the output of its first two consoles until it ends."""
        consoles = {socket.socketpair(): 2, socket.socketpair(): 1}
        theirs = [end for _, end in consoles]
        command += self.console(0, f"socket,fd={theirs[0].fileno()},logfile={self.console_log}")
        command += self.console(1, f"socket,fd={theirs[1].fileno()}")
        own = {"pass_fds": [end.fileno() for end in theirs], "stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        with open(self.qemu_log, "wb") as errors:
            # Ctrl-C at a terminal is for this program only, which then ends QEMU.
            self.start(command, stderr=errors, start_new_session=True, **own)
        for end in theirs:
            end.close()
        copy({ours: fd for (ours, _), fd in consoles.items()})
        self.process.wait()

    def run_shell(self, command):
        """Runs QEMU with its first console at the terminal."""
        # "mux" provides the key to leave, Ctrl-A X.
        command += self.console(0, f"stdio,mux=on,signal=off,logfile={self.console_log}")
        command += self.console(1, "null")
        # A QEMU that is killed does not restore the terminal's settings.
        settings = termios.tcgetattr(0)
        try:
            self.start(command)
            self.process.wait()
        finally:
            self.stop()
            termios.tcsetattr(0, termios.TCSANOW, settings)

    def console(self, number, backend):
        """Returns QEMU's options for a console. OPAL has only one console: the others are
        virtio's."""
        virtio = number and self.options.machine == "powernv"
        device = ["-device", f"virtconsole,chardev=c{number}"] if virtio else ["-serial", f"chardev:c{number}"]
        return ["-chardev", f"{backend},id=c{number}", *device]

    def start(self, command, **options):
        """Starts QEMU with its last console. The kernel kills it if this program is killed."""
        command += self.console(2, f"file,path={self.control}")
        self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], **options)

    def stop(self):
        """Ends QEMU if it is still running."""
        if self.process:
            self.process.kill()
            self.process.wait()

    def result(self):
        """Returns the exit status of a guest that has ended."""
        control = self.control.read_text(errors="replace")
        ended = re.search(r"^status (\d+) (\d+)$", control, re.MULTILINE)
        status, taint = map(int, ended.groups()) if ended else (None, 0)
        if report := complaint(self.console_log.read_bytes(), taint):
            raise Stop(GUEST_BROKEN, f"the guest's kernel reported: {report}")
        if failure := re.search("^failed (.*)", control, re.MULTILINE):
            raise Stop(GUEST_BROKEN, failure[1])
        if status is not None:
            return status
        if not self.options.command and self.process.returncode == 0:
            # The user left through QEMU's key instead of the shell.
            return 0
        when = "while" if control else "before"
        reason = f"the guest ended {when} the command ran: QEMU's exit status is {self.process.returncode}"
        # QEMU may print all registers before it dies.
        said = self.qemu_log.read_text(errors="replace")[-SAID_CHARACTERS:].splitlines()[-SAID_LINES:]
        raise Stop(GUEST_BROKEN, "\n  ".join([reason, *said]))

    def logs(self):
        """Returns the logs of a guest that failed: a description and the path of each."""
        logs = {"the kernel's log": self.console_log, "what QEMU said": self.qemu_log}
        return {name: path for name, path in logs.items() if path.stat().st_size}


def copy(consoles):
    """Copies each console's output to its file descriptor until all end, in whole lines: where both
    go to one file, lines must not be mixed."""
    unfinished = dict.fromkeys(consoles, b"")
    try:
        with selectors.DefaultSelector() as selector:
            for console, fd in consoles.items():
                selector.register(console, selectors.EVENT_READ, fd)
            while selector.get_map():
                for key, _ in selector.select():
                    try:
                        data = os.read(key.fd, 1 << 16)
                    except ConnectionResetError:
                        data = b""
                    if not data:
                        selector.unregister(key.fileobj)
                    # The kernel ends its lines with "\r\n".
                    text = unfinished[key.fileobj] + (data.replace(b"\r", b"") if key.data == 2 else data)
                    # A line ends with the console, too. A long line is passed on in pieces.
                    finished = text.rfind(b"\n") + 1 if data else len(text)
                    if len(text) - finished > select.PIPE_BUF:
                        finished = len(text)
                    unfinished[key.fileobj] = text[finished:]
                    write(key.data, text[:finished])
    except BaseException:
        # The run is stopped, and the reader may be gone: a descriptor that is ready accepts this
        # much.
        for console, fd in consoles.items():
            if select.select([], [fd], [], 0)[1]:
                with contextlib.suppress(OSError):
                    os.write(fd, unfinished[console])
        raise


def write(fd, data):
    """Writes all of the data."""
    while data:
        data = data[os.write(fd, data) :]

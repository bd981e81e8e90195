# SPDX-License-Identifier: GPL-2.0
"""Run one guest: QEMU, what comes from its consoles, and how the guest ended.

Kernel messages go to stderr and into console.log of the run's folder, the command's
output to stdout; the third console has what guest/init says.
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

# Exit status; scripts/vm --help says when.
TIMED_OUT = 124
GUEST_BROKEN = 125
NO_GUEST = 126

# Properties of a machine, as far as it has them: what QEMU's TCG cannot imitate must be
# said to be missing, mitigations of the hardware's speculation.
PROPERTIES = ["cap-cfpc=broken", "cap-sbbc=broken", "cap-ibs=broken", "cap-ccf-assist=off"]

# How much is shown of what QEMU said before it died.
SAID_LINES = 10
SAID_CHARACTERS = 2000


class Stop(Exception):
    """The run ends here, with this exit status and for this reason."""

    def __init__(self, status, reason):
        super().__init__(reason)
        self.status = status


def machine_options(qemu, machine):
    """The machine and its properties, as far as this QEMU knows them."""
    done = subprocess.run([*qemu, "-M", f"{machine},help"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Stop(NO_GUEST, f"{qemu[-1]} has no {machine} machine: {done.stderr.strip()}")
    options = [p for p in PROPERTIES if re.search(rf"^ *{p.split('=')[0]}=", done.stdout, re.M)]
    return ",".join([machine, *options])


def qemu_command(qemu, folder, options):
    """QEMU's command line, without the consoles."""
    if options.machine == "powernv":
        # One machine for each CPU. Its default devices are needed: ports of the PCI host
        # bridge, and the BMC, which the firmware asks to power off.
        machine = options.cpu.replace("power", "powernv")
        devices = ["-nic", "none", "-monitor", "none", "-device", "virtio-serial-pci,bus=pcie.0"]
    else:
        machine = "pseries"
        # x-vof is a firmware that boots in no time. With a firmware variable to hold, QEMU
        # formats the NVRAM; the kernel warns of one that is blank.
        devices = ["-M", "x-vof=on", "-cpu", options.cpu, "-nodefaults", "-prom-env", "auto-boot?=false"]
    compat = ["-M", f"max-cpu-compat={options.compat}"] if options.compat else []
    command = [*qemu, "-M", machine_options(qemu, machine), *compat, *devices]
    accel = "tcg"
    if options.trace:
        # A line is of a translation block, which thus has to be an instruction, entered each
        # time by way of the main loop.
        file, _, ranges = options.trace.rpartition(":")
        accel = "tcg,one-insn-per-tb=on"
        command += ["-d", "exec,nochain", "-dfilter", ranges, "-D", os.path.abspath(file)]
    if options.covered:
        # Code is translated just before it is executed.
        file, _, ranges = options.covered.rpartition(":")
        command += ["-d", "in_asm", "-dfilter", ranges, "-D", os.path.abspath(file)]
    command += ["-accel", accel, "-smp", options.smp, "-m", options.mem]
    command += ["-display", "none", "-no-reboot"]
    command += ["-kernel", folder / "vmlinux", "-initrd", folder / "initramfs"]
    # ignore_loglevel: no report may get lost, whatever the command does to the
    # log level. panic=-1: reboot, which ends QEMU.
    words = "console=hvc0 ignore_loglevel printk.time=1 panic=-1 rdinit=/init"
    if options.machine == "powernv":
        # On POWER8 it asks which CPU it runs on without staying there, which a debug kernel reports.
        words += " initcall_blacklist=__machine_initcall_powernv_subcore_init"
    command += ["-append", f"{words} {options.append}"]
    if options.icount == "on":
        # One instruction takes 1 ns, and idle time passes at once. Neither the host's clock nor its
        # random numbers make a difference.
        command += ["-icount", "shift=0,sleep=off", "-rtc", "base=2030-01-01,clock=vm", "-seed", options.seed]
    if options.gdb:
        command += ["-gdb", f"tcp:127.0.0.1:{options.gdb}", "-S"]
    return command


class Guest:
    """A QEMU, and what came from its consoles."""

    def __init__(self, qemu, run, options):
        self.qemu, self.options = qemu, options
        # Kernel and initramfs; beside it there are the logs.
        self.folder = run / "files"
        self.console_log, self.qemu_log = run / "console.log", run / "qemu.log"
        # What guest/init says.
        self.control = run / "control"
        for log in (self.console_log, self.qemu_log, self.control):
            log.touch()
        self.process = None

    def run(self):
        """Run the guest to its end; return the exit status."""
        command = qemu_command(self.qemu, self.folder, self.options)
        signal.alarm(int(self.options.timeout))
        try:
            if self.options.command:
                self.run_command(command)
            else:
                self.run_shell(command)
        except Stop as stop:
            # A guest that hangs after an oops is a broken one first of all.
            if stop.status != TIMED_OUT or not complaint(self.console_log.read_bytes(), 0):
                raise
        return self.result()

    def run_command(self, command):
        """Run QEMU and pass on what comes from its first two consoles until it is gone."""
        consoles = {socket.socketpair(): 2, socket.socketpair(): 1}
        theirs = [end for _, end in consoles]
        command += self.console(0, f"socket,fd={theirs[0].fileno()},logfile={self.console_log}")
        command += self.console(1, f"socket,fd={theirs[1].fileno()}")
        own = {"pass_fds": [end.fileno() for end in theirs], "stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        with open(self.qemu_log, "wb") as errors:
            # A terminal's Ctrl-C is for this program, which ends QEMU.
            self.start(command, stderr=errors, start_new_session=True, **own)
        for end in theirs:
            end.close()
        copy({ours: fd for (ours, _), fd in consoles.items()})
        self.process.wait()

    def run_shell(self, command):
        """Run QEMU with its first console at the terminal."""
        # "mux" brings the key that leaves, Ctrl-A X.
        command += self.console(0, f"stdio,mux=on,signal=off,logfile={self.console_log}")
        command += self.console(1, "null")
        # QEMU restores the terminal's settings too, unless it is killed.
        settings = termios.tcgetattr(0)
        try:
            self.start(command)
            self.process.wait()
        finally:
            self.stop()
            termios.tcsetattr(0, termios.TCSANOW, settings)

    def console(self, number, backend):
        """QEMU's options for one of the consoles. OPAL has only one: the others are virtio's."""
        virtio = number and self.options.machine == "powernv"
        device = ["-device", f"virtconsole,chardev=c{number}"] if virtio else ["-serial", f"chardev:c{number}"]
        return ["-chardev", f"{backend},id=c{number}", *device]

    def start(self, command, **options):
        """Start QEMU with its last console, too. The kernel kills it should this program be killed."""
        command += self.console(2, f"file,path={self.control}")
        self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], **options)

    def stop(self):
        """End QEMU if it still runs."""
        if self.process:
            self.process.kill()
            self.process.wait()

    def result(self):
        """The exit status, once the guest is gone."""
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
            # The person left through QEMU instead of the shell.
            return 0
        when = "while" if control else "before"
        reason = f"the guest ended {when} the command ran: QEMU's exit status is {self.process.returncode}"
        # It may print all registers before it dies.
        said = self.qemu_log.read_text(errors="replace")[-SAID_CHARACTERS:].splitlines()[-SAID_LINES:]
        raise Stop(GUEST_BROKEN, "\n  ".join([reason, *said]))

    def logs(self):
        """What there is to read of a guest that went wrong: whose it is, and its path."""
        logs = {"the kernel's log": self.console_log, "what QEMU said": self.qemu_log}
        return {name: path for name, path in logs.items() if path.stat().st_size}


def copy(consoles):
    """Write what comes from each of these to its file descriptor until they end, in whole
    lines: where both go to one file, neither cuts a line of the other in two."""
    held = dict.fromkeys(consoles, b"")
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
                    # The kernel ends its lines as a terminal does.
                    text = held[key.fileobj] + (data.replace(b"\r", b"") if key.data == 2 else data)
                    # A line is finished by the console's end, and passed on in pieces if it is long.
                    finished = text.rfind(b"\n") + 1 if data else len(text)
                    if len(text) - finished > select.PIPE_BUF:
                        finished = len(text)
                    held[key.fileobj] = text[finished:]
                    write(key.data, text[:finished])
    except BaseException:
        # The run is stopped. Nobody may be reading any more; what is ready takes this much.
        for console, fd in consoles.items():
            if select.select([], [fd], [], 0)[1]:
                with contextlib.suppress(OSError):
                    os.write(fd, held[console])
        raise


def write(fd, data):
    """Write all of this."""
    while data:
        data = data[os.write(fd, data) :]

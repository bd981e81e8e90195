# SPDX-License-Identifier: GPL-2.0
"""Run one guest: QEMU, what comes from its consoles, and how the guest ended.

Kernel messages go to stderr and into console.log of the run's folder, the command's
output to stdout; the third console has what guest/init says.
"""

import ctypes
import os
import re
import selectors
import signal
import socket
import subprocess
import termios

from kernellog import complaint

# Exit status; scripts/vm --help says when.
TIMED_OUT = 124
GUEST_BROKEN = 125
NO_GUEST = 126

# Properties of a machine, as far as it has them: what QEMU's TCG cannot imitate must be
# said to be missing, mitigations of the hardware's speculation.
PROPERTIES = ["cap-cfpc=broken", "cap-sbbc=broken", "cap-ibs=broken", "cap-ccf-assist=off"]

# How much is shown of what QEMU said before it died: it may print all registers.
SAID_LINES = 10
SAID_BYTES = 2000


class Stop(Exception):
    """The run ends here, with this exit status and for this reason."""

    def __init__(self, status, reason):
        super().__init__(reason)
        self.status = status


def machine_options(qemu, machine):
    """The machine and its properties, as far as this QEMU knows them."""
    try:
        known = subprocess.run([*qemu, "-M", f"{machine},help"], capture_output=True, text=True, check=True).stdout
    except OSError as error:
        raise Stop(NO_GUEST, f"{qemu[-1]} does not run: {error.strerror}") from error
    except subprocess.CalledProcessError as error:
        raise Stop(NO_GUEST, f"{qemu[-1]} has no {machine} machine: {error.stderr.strip()}") from error
    options = [p for p in PROPERTIES if re.search(rf"^ *{p.split('=')[0]}=", known, re.M)]
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
    command = [*qemu, "-M", machine_options(qemu, machine), *devices]
    command += ["-accel", "tcg", "-smp", options.smp, "-m", options.mem]
    command += ["-display", "none", "-no-reboot"]
    command += ["-kernel", folder / "vmlinux", "-initrd", folder / "initramfs"]
    # ignore_loglevel: no report may get lost, whatever the command does to the
    # log level. panic=-1: reboot, which ends QEMU.
    words = "console=hvc0 ignore_loglevel printk.time=1 panic=-1 rdinit=/init"
    command += ["-append", f"{words} {options.append}"]
    if options.icount == "on":
        # One instruction takes 1 ns, and idle time passes at once.
        command += ["-icount", "shift=0,sleep=off"]
    if options.gdb:
        command += ["-gdb", f"tcp:127.0.0.1:{options.gdb}", "-S"]
    return command


class Guest:
    """A QEMU, its consoles and what came from them so far."""

    def __init__(self, qemu, run, options):
        self.qemu, self.options = qemu, options
        # Kernel and initramfs; beside it there are the logs.
        self.folder = run / "files"
        self.console_log = run / "console.log"
        self.qemu_log = run / "qemu.log"
        self.control = b""
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
        """Run QEMU and copy from its consoles until it is gone."""
        handlers = {}
        passed = []
        with open(self.console_log, "wb", buffering=0) as log, open(self.qemu_log, "wb") as errors:

            def kernel(data):
                log.write(data)
                # The console ends its lines as a terminal does.
                write_all(2, data.replace(b"\r", b""))

            for number, handler in enumerate([kernel, lambda data: write_all(1, data), self.hear]):
                ours, theirs = socket.socketpair()
                handlers[ours] = handler
                passed.append(theirs)
                command += self.console(number, f"socket,fd={theirs.fileno()}")
            # A terminal's Ctrl-C is for this program, which ends QEMU.
            own = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "start_new_session": True}
            self.start(command, passed, stderr=errors, **own)
            copy(handlers)
        self.process.wait()

    def run_shell(self, command):
        """Run QEMU with its first console at the terminal."""
        ours, theirs = socket.socketpair()
        # "mux" brings the key that leaves, Ctrl-A X.
        command += self.console(0, f"stdio,mux=on,signal=off,logfile={self.console_log}")
        command += self.console(1, "null")
        command += self.console(2, f"socket,fd={theirs.fileno()}")
        # QEMU restores the terminal's settings too, unless it is killed.
        settings = termios.tcgetattr(0)
        try:
            self.start(command, [theirs])
            copy({ours: self.hear})
            self.process.wait()
        finally:
            self.stop()
            termios.tcsetattr(0, termios.TCSANOW, settings)

    def console(self, number, backend):
        """QEMU's options for one of the consoles. OPAL has only one: the others are virtio's."""
        virtio = number and self.options.machine == "powernv"
        device = ["-device", f"virtconsole,chardev=c{number}"] if virtio else ["-serial", f"chardev:c{number}"]
        return ["-chardev", f"{backend},id=c{number}", *device]

    def start(self, command, consoles, **options):
        """Start QEMU with its ends of the consoles."""
        options["pass_fds"] = [end.fileno() for end in consoles]
        try:
            self.process = subprocess.Popen(command, preexec_fn=die_with_parent, **options)
        except OSError as error:
            raise Stop(NO_GUEST, f"{command[0]} does not run: {error.strerror}") from error
        for end in consoles:
            end.close()

    def stop(self):
        """End QEMU if it still runs."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def hear(self, data):
        """Take what the guest's init says."""
        self.control += data

    def result(self):
        """The exit status, once the guest is gone."""
        lines = self.control.decode(errors="replace").splitlines()
        words = {word: rest for word, _, rest in (line.partition(" ") for line in lines)}
        status, taint = None, 0
        if re.fullmatch(r"\d+ \d+", words.get("status", "")):
            status, taint = map(int, words["status"].split())
        if report := complaint(self.console_log.read_bytes(), taint):
            raise Stop(GUEST_BROKEN, f"the guest's kernel reported: {report}")
        if "failed" in words:
            raise Stop(GUEST_BROKEN, words["failed"])
        if status is not None:
            return status
        if not self.options.command and self.process.returncode == 0:
            # The person left through QEMU instead of the shell.
            return 0
        when = "while the command ran" if "ready" in words else "before the command ran"
        reason = f"the guest ended {when}: QEMU's exit status is {self.process.returncode}"
        raise Stop(GUEST_BROKEN, "\n  ".join([reason, *self.last_words()]))

    def last_words(self):
        """The end of what QEMU said."""
        said = self.qemu_log.read_bytes() if self.qemu_log.exists() else b""
        return said[-SAID_BYTES:].decode(errors="replace").splitlines()[-SAID_LINES:]

    def logs(self):
        """What there is to read of a guest that went wrong: whose it is, and its path."""
        logs = {"the kernel's log": self.console_log, "what QEMU said": self.qemu_log}
        return {name: path for name, path in logs.items() if path.exists() and path.stat().st_size}


def die_with_parent():
    """Have the kernel kill this process should its parent be killed."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def copy(handlers):
    """Give each source's data to its handler until all are at their end."""
    with selectors.DefaultSelector() as selector:
        for source, handler in handlers.items():
            selector.register(source, selectors.EVENT_READ, handler)
        while selector.get_map():
            for key, _ in selector.select():
                try:
                    data = os.read(key.fd, 1 << 16)
                except ConnectionResetError:
                    data = b""
                if data:
                    key.data(data)
                else:
                    selector.unregister(key.fileobj)


def write_all(fd, data):
    """Write all of `data` to the file descriptor `fd`."""
    while data:
        data = data[os.write(fd, data) :]

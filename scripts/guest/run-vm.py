#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Boot one guest, pass its output on and exit as its command did.

This is the second half of scripts/vm, which parses and checks the options, has
put all files in place and documents the exit status. It is handed a folder of
its own (--run), with the files to add under `add/`, and removes it at the end
unless the kernel's log in it is worth keeping.
"""

import argparse
import ctypes
import os
import re
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import termios

from initramfs import Archive
from kernellog import KernelLog

HERE = os.path.dirname(os.path.abspath(__file__))

# Exit status; scripts/vm --help says when.
TIMED_OUT = 124
GUEST_BROKEN = 125
NO_GUEST = 126

FOLDERS = """/bin /sbin /usr/bin /usr/sbin /usr/local/bin /lib /lib/modules /usr/lib
/etc/vm /dev /proc /sys /tmp /run /mnt /var/tmp /root""".split()

# What QEMU's TCG cannot imitate must be said to be missing: mitigations of the
# hardware's speculation (cap-*). x-vof is a firmware that boots in no time.
MACHINE = ["cap-cfpc=broken", "cap-sbbc=broken", "cap-ibs=broken", "cap-ccf-assist=off"]


class Stop(Exception):
    """The run ends here, with this exit status and for this reason."""

    def __init__(self, status, reason):
        super().__init__(reason)
        self.status = status


def parse_arguments():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--run", required=True)
    parser.add_argument("--kernel", required=True)
    parser.add_argument("--busybox", required=True)
    parser.add_argument("--archive", action="append", default=[], help="more of an initramfs")
    parser.add_argument("--qemu", required=True)
    parser.add_argument("--cpu", required=True)
    parser.add_argument("--smp", required=True)
    parser.add_argument("--mem", required=True)
    parser.add_argument("--icount", choices=["on", "off"], required=True)
    parser.add_argument("--driver", choices=["rust", "in-tree"], required=True)
    parser.add_argument("--params", default="", help="parameters of the module")
    parser.add_argument("--paranoid", default="")
    parser.add_argument("--timeout", type=int, default=0)
    parser.add_argument("command", nargs="*", help="none: a shell at this terminal")
    return parser.parse_args()


def write_initramfs(path, options):
    """Pack the guest's root file system: base, archives, added files, command."""
    terminal = shutil.get_terminal_size()
    settings = {
        "driver": options.driver,
        "params": options.params,
        "paranoid": options.paranoid,
        "rows": terminal.lines,
        "columns": terminal.columns,
    }
    with open(path, "wb") as out:
        archive = Archive(out)
        for folder in FOLDERS:
            archive.folder(folder)
        archive.device("/dev/console", 5, 1)
        archive.device("/dev/null", 1, 3, 0o666)
        archive.file("/bin/busybox", options.busybox, 0o755)
        archive.file("/init", os.path.join(HERE, "init"), 0o755)
        archive.text("/etc/passwd", PASSWD)
        archive.text("/etc/group", GROUP)
        archive.text("/etc/perfconfig", PERFCONFIG)
        for more in options.archive:
            archive.append(more)
        archive.tree(os.path.join(options.run, "add"))
        assignments = (f"{k}={shlex.quote(str(v))}\n" for k, v in settings.items())
        archive.text("/etc/vm/options", "".join(assignments))
        if options.command:
            archive.text("/etc/vm/command", shlex.join(options.command) + "\n")
        archive.close()


PASSWD = """root:x:0:0:root:/root:/bin/sh
nobody:x:65534:65534:nobody:/tmp:/bin/sh
"""
GROUP = """root:x:0:
nogroup:x:65534:
"""
# Text at a terminal too: the full-screen viewer needs a terminal database.
PERFCONFIG = "[tui]\n\treport = off\n\tannotate = off\n\ttop = off\n"


def machine_options(qemu):
    """The machine and its properties, as far as this QEMU knows them."""
    try:
        help_text = subprocess.run(
            [qemu, "-M", "pseries,help"], capture_output=True, text=True, check=True
        ).stdout
    except OSError as error:
        raise Stop(NO_GUEST, f"{qemu} does not run: {error.strerror}") from error
    except subprocess.CalledProcessError as error:
        raise Stop(NO_GUEST, f"{qemu} has no pseries machine: {error.stderr.strip()}") from error
    known = [p for p in MACHINE if re.search(rf"^ *{p.split('=')[0]}=", help_text, re.M)]
    return ",".join(["pseries", "x-vof=on", *known])


def qemu_command(options, initramfs):
    """QEMU's command line, without the consoles."""
    command = [options.qemu, "-M", machine_options(options.qemu), "-cpu", options.cpu]
    command += ["-accel", "tcg", "-smp", options.smp, "-m", options.mem]
    command += ["-nodefaults", "-display", "none", "-no-reboot"]
    command += ["-kernel", options.kernel, "-initrd", initramfs]
    # With a firmware variable to hold, QEMU formats the NVRAM; the kernel warns
    # of one that is blank.
    command += ["-prom-env", "auto-boot?=false"]
    # ignore_loglevel: no report may get lost, whatever the command does to the
    # log level. panic=-1: reboot, which ends QEMU.
    command += ["-append", "console=hvc0 ignore_loglevel printk.time=1 panic=-1 rdinit=/init"]
    if options.icount == "on":
        # One instruction takes 1 ns, and idle time passes at once.
        command += ["-icount", "shift=0,sleep=off"]
    return command


class Guest:
    """A running QEMU, its consoles and what came from them so far."""

    def __init__(self, options):
        self.options = options
        self.log_path = os.path.join(options.run, "console.log")
        self.log = KernelLog()
        self.control = b""
        self.errors = b""
        self.process = None

    def run(self):
        """Run the guest to its end; return the exit status."""
        initramfs = os.path.join(self.options.run, "initramfs")
        write_initramfs(initramfs, self.options)
        command = qemu_command(self.options, initramfs)
        try:
            if self.options.command:
                self.run_command(command)
            else:
                self.run_shell(command)
        except Stop as stop:
            self.log.close()
            # A guest that hangs after an oops is a broken one first of all.
            if self.log.report is None or stop.status != TIMED_OUT:
                raise
        return self.result()

    def run_command(self, command):
        """Run QEMU and copy from its consoles until it is gone."""
        handlers = {}
        passed = []
        with open(self.log_path, "wb", buffering=0) as log:

            def kernel(data):
                log.write(data)
                # The console ends its lines as a terminal does.
                data = data.replace(b"\r", b"")
                self.log.feed(data)
                write_all(2, data)

            consoles = [kernel, lambda data: write_all(1, data), self.hear]
            for number, handler in enumerate(consoles):
                ours, theirs = socket.socketpair()
                handlers[ours] = handler
                passed.append(theirs)
                name = f"console{number}"
                command += ["-chardev", f"socket,id={name},fd={theirs.fileno()}"]
                command += ["-serial", f"chardev:{name}"]
            self.start(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[end.fileno() for end in passed],
                # A terminal's Ctrl-C is for this program, which ends QEMU.
                start_new_session=True,
            )
            handlers[self.process.stderr] = self.blame
            for end in passed:
                end.close()
            copy(handlers)
        self.process.wait()
        self.log.close()

    def run_shell(self, command):
        """Run QEMU with its first console at the terminal."""
        ours, theirs = socket.socketpair()
        # "mux" brings the key that leaves, Ctrl-A X.
        terminal = f"stdio,id=console0,mux=on,signal=off,logfile={self.log_path}"
        command += ["-chardev", terminal, "-serial", "chardev:console0"]
        command += ["-chardev", "null,id=console1", "-serial", "chardev:console1"]
        command += ["-chardev", f"socket,id=console2,fd={theirs.fileno()}"]
        command += ["-serial", "chardev:console2"]
        # QEMU restores the terminal's settings too, unless it is killed.
        settings = termios.tcgetattr(0)
        try:
            self.start(command, pass_fds=[theirs.fileno()])
            theirs.close()
            copy({ours: self.hear})
            self.process.wait()
        finally:
            self.stop()
            termios.tcsetattr(0, termios.TCSANOW, settings)
        with open(self.log_path, "rb") as log:
            self.log.feed(log.read().replace(b"\r", b""))
        self.log.close()

    def start(self, command, **options):
        try:
            self.process = subprocess.Popen(command, preexec_fn=die_with_parent, **options)
        except OSError as error:
            raise Stop(NO_GUEST, f"{command[0]} does not run: {error.strerror}") from error

    def stop(self):
        """End QEMU if it still runs."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def has_log(self):
        """Whether the kernel came to print anything."""
        return os.path.exists(self.log_path) and os.path.getsize(self.log_path) > 0

    def hear(self, data):
        """Take what the guest's init says."""
        self.control += data

    def blame(self, data):
        """Keep QEMU's own messages, for when there is nobody else to blame."""
        self.errors += data

    def result(self):
        """The exit status, once the guest is gone."""
        words = {}
        for line in self.control.decode(errors="replace").splitlines():
            word, _, rest = line.partition(" ")
            words[word] = rest
        status, taint = None, 0
        if re.fullmatch(r"\d+ \d+", words.get("status", "")):
            status, taint = map(int, words["status"].split())
        self.log.taint(taint)
        if self.log.report is not None:
            raise Stop(GUEST_BROKEN, f"the guest's kernel reported: {self.log.report}")
        if "failed" in words:
            raise Stop(GUEST_BROKEN, words["failed"])
        if status is not None:
            return status
        if not self.options.command and self.process.returncode == 0:
            # The person left through QEMU instead of the shell.
            return 0
        when = "while the command ran" if "ready" in words else "before the command ran"
        errors = self.errors.decode(errors="replace").split("\n")
        reason = "; ".join([f"QEMU's exit status is {self.process.returncode}", *filter(None, errors)])
        raise Stop(GUEST_BROKEN, f"the guest ended {when}: {reason}")


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


def catch_signals(timeout):
    """Turn signals and the end of the time into exceptions."""

    def interrupted(number, _frame):
        raise Stop(128 + number, f"stopped by {signal.Signals(number).name}")

    def timed_out(_number, _frame):
        raise Stop(TIMED_OUT, f"the guest was stopped after {timeout} s")

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupted)
    signal.signal(signal.SIGALRM, timed_out)
    if timeout:
        signal.alarm(timeout)


def main():
    options = parse_arguments()
    guest = Guest(options)
    keep_log = False
    try:
        catch_signals(options.timeout)
        status = guest.run()
    except Stop as stop:
        status = stop.status
        print(f"vm: {stop}", file=sys.stderr)
        keep_log = status in (TIMED_OUT, GUEST_BROKEN) and guest.has_log()
        if keep_log:
            print(f"vm: the kernel's log is {guest.log_path}", file=sys.stderr)
    except BrokenPipeError:
        status = 128 + signal.SIGPIPE
    except OSError as error:
        status = NO_GUEST
        print(f"vm: {error}", file=sys.stderr)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)
        guest.stop()
        remove(options.run, guest.log_path if keep_log else None)
    sys.exit(status)


def remove(folder, log):
    """Remove the run's folder, but for a log worth keeping."""
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        elif entry.path != log:
            os.unlink(entry.path)
    if log is None:
        os.rmdir(folder)


if __name__ == "__main__":
    main()

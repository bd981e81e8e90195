# SPDX-License-Identifier: GPL-2.0
"""What the scripts in Python share: where things are, and how they run commands, some
at a time, that end when the script is told to."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent.parent
TABLES = SCRIPTS / "tables"
TOP = SCRIPTS.parent
CACHE = Path(os.environ.get("EBB_CACHE") or TOP / ".cache").resolve()
TARGET = "powerpc64le-unknown-linux-gnu"
# The programs for the guest, which `make tools` builds.
PROGRAMS = CACHE / "target/tools" / TARGET / "release"

LOGS_KEPT_DAYS = 7
# Seconds a command has to end in when it is told to, before it is killed.
GRACE = 20

lock = threading.Lock()
# Each is the first of a group of its own; none is started any more once this is None.
processes = set()


def output(*command):
    """What a command prints; if it fails, so does this program."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout if done.returncode == 0 else sys.exit(done.returncode)


def cached(entry):
    """The folder of an entry of the cache that scripts/setup has made."""
    return Path(output(SCRIPTS / "setup", "--print", entry).strip())


def new_log_folder(name):
    """A folder for this run's logs; those of earlier runs stay for a while."""
    for old in (CACHE / "log").glob(f"{name}-*"):
        if time.time() - old.stat().st_mtime > LOGS_KEPT_DAYS * 86400:
            shutil.rmtree(old, ignore_errors=True)
    folder = CACHE / "log" / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    folder.mkdir(parents=True)
    return folder


@contextmanager
def running(command, **options):
    """A process that runs this command, to its end."""
    with lock:
        if processes is None:
            raise InterruptedError
        words = [str(word) for word in command]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True, **options)
        processes.add(process)
    try:
        yield process
        process.wait()
    except BaseException:
        stop_all()
        raise


def wait(process):
    """Wait for a process's end; return its exit status, and the CPU seconds that it and
    its children took."""
    try:
        _, status, used = os.wait4(process.pid, 0)
    except ChildProcessError:
        # stop_all() was faster.
        return process.wait(), 0
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, used.ru_utime + used.ru_stime


def stop_all():
    """End all that runs, and what that started, and start no more."""
    global processes
    with lock:
        left, processes = processes or (), None
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in left:
            if process.poll() is None:
                # It may have ended, and another thread be about to say so.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
        deadline = time.monotonic() + GRACE
        while any(process.poll() is None for process in left) and time.monotonic() < deadline:
            time.sleep(0.1)


def in_parallel(count, functions):
    """Call these functions, so many at a time."""
    with ThreadPoolExecutor(count) as pool:
        try:
            list(pool.map(lambda function: function(), functions))
        except BaseException:
            stop_all()
            raise


def end_on_signals():
    """Have signals end this program, by way of what it does last."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))

# SPDX-License-Identifier: GPL-2.0
"""Common functions of the scripts in Python: paths, and commands, which may run in parallel and
which end when the script has to end."""

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
# Seconds that a command has to end after SIGTERM, before it is killed.
GRACE = 20

lock = threading.Lock()
# Running commands, each the leader of a process group. None if no more may be started.
processes = set()


def output(*command):
    """Returns the output of a command. If the command fails, so does this program."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout if done.returncode == 0 else sys.exit(done.returncode)


def cached(entry):
    """Returns the folder of an entry of the cache that scripts/setup has made."""
    return Path(output(SCRIPTS / "setup", "--print", entry).strip())


def new_log_folder(name):
    """Creates a folder for this run's logs; deletes old ones of earlier runs."""
    for old in (CACHE / "log").glob(f"{name}-*"):
        if time.time() - old.stat().st_mtime > LOGS_KEPT_DAYS * 86400:
            shutil.rmtree(old, ignore_errors=True)
    folder = CACHE / "log" / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    folder.mkdir(parents=True)
    return folder


@contextmanager
def running(command, **options):
    """Runs this command during a `with` block, and waits for its end."""
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
    """Waits for a process's end; returns its exit status, and the CPU seconds of it and its
    children."""
    try:
        _, status, used = os.wait4(process.pid, 0)
    except ChildProcessError:
        # stop_all() has already waited for it.
        return process.wait(), 0
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, used.ru_utime + used.ru_stime


def stop_all():
    """Ends all commands and their children, and starts no more."""
    global processes
    with lock:
        left, processes = processes or (), None
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in left:
            if process.poll() is None:
                # It may have ended, before another thread has waited for it.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
        deadline = time.monotonic() + GRACE
        while any(process.poll() is None for process in left) and time.monotonic() < deadline:
            time.sleep(0.1)


def in_parallel(count, functions):
    """Calls these functions, at most `count` at a time."""
    with ThreadPoolExecutor(count) as pool:
        try:
            list(pool.map(lambda function: function(), functions))
        except BaseException:
            stop_all()
            raise


def end_on_signals():
    """Makes signals end this program in an orderly way."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))

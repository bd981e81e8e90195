// SPDX-License-Identifier: GPL-2.0
//! Child processes that work in step with the test.

use std::io;
use std::io::PipeReader;
use std::io::PipeWriter;
use std::io::Read;
use std::io::Write;

use crate::check_status;

/// A forked child.
pub struct Child {
    pid: libc::pid_t,
}

impl Child {
    /// Forks; the child runs `body` and exits with 0, or 1 if it fails.
    ///
    /// Only for programs with one thread.
    pub fn spawn(body: impl FnOnce() -> io::Result<()>) -> io::Result<Child> {
        // SAFETY: there is one thread, so the child finds no lock taken.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let status = match body() {
                    Ok(()) => 0,
                    Err(error) => {
                        eprintln!("child: {error}");
                        1
                    }
                };
                // SAFETY: ends the child without the parent's exit handlers.
                unsafe { libc::_exit(status) }
            }
            pid => Ok(Child { pid }),
        }
    }

    /// Its process number.
    pub fn pid(&self) -> libc::pid_t {
        self.pid
    }

    /// Waits until it has ended; any status but 0 is an error.
    pub fn wait(self) -> io::Result<()> {
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        check_status(unsafe { libc::waitpid(self.pid, &mut status, 0) })?;
        if status != 0 {
            return Err(io::Error::other(format!(
                "child ended with wait status {status:#x}"
            )));
        }
        Ok(())
    }
}

/// A user without privileges.
const NOBODY: libc::uid_t = 65534;

/// Makes the calling process an unprivileged user's, for good.
pub fn become_nobody() -> io::Result<()> {
    // SAFETY: a call without pointers.
    check_status(unsafe { libc::setuid(NOBODY) })
}

/// One direction of "you may go on": a pipe of single bytes.
pub struct Turnstile {
    reader: PipeReader,
    writer: PipeWriter,
}

impl Turnstile {
    /// A closed one.
    pub fn new() -> io::Result<Turnstile> {
        let (reader, writer) = io::pipe()?;
        Ok(Turnstile { reader, writer })
    }

    /// Lets one waiter through.
    pub fn open(&self) -> io::Result<()> {
        (&self.writer).write_all(&[0])
    }

    /// Waits to be let through.
    pub fn pass(&self) -> io::Result<()> {
        (&self.reader).read_exact(&mut [0])
    }
}

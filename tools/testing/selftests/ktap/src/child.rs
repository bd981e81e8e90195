// SPDX-License-Identifier: GPL-2.0
//! Child processes with a time limit, their output read line by line.
//!
//! A child leads a process group of its own. The whole group is killed when the child is done, so
//! that no process that a test left keeps running during the next test.

use std::fs::File;
use std::io;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::process::ExitStatus;
use std::time::Duration;
use std::time::Instant;

use crate::Outcome;
use crate::process;
use crate::process::Link;

/// Longest wait for output before the child's status is checked again.
const TICK: Duration = Duration::from_millis(50);

/// A running child and the read end of its output.
pub(crate) struct Child {
    pid: libc::pid_t,
    output: File,
    link: Option<Link>,
}

impl Child {
    /// Forks a child that runs `test` and reports its outcome.
    pub(crate) fn fork(test: fn() -> Outcome) -> io::Result<Child> {
        let (output, writer) = io::pipe()?;
        let (pid, link) = process::fork(|_| {
            // SAFETY: The calls affect this process only; the descriptor of the pipe is open.
            unsafe {
                libc::setpgid(0, 0);
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::dup2(writer.as_raw_fd(), libc::STDOUT_FILENO);
                libc::dup2(writer.as_raw_fd(), libc::STDERR_FILENO);
            }
            drop(writer);
            test()
        })?;
        // The child calls setpgid() too: the group must exist, no matter which of the two runs
        // first.
        // SAFETY: The system call takes no pointers; it fails only if the child was faster.
        unsafe { libc::setpgid(pid, pid) };
        Ok(Child {
            pid,
            output: File::from(OwnedFd::from(output)),
            link: Some(link),
        })
    }

    /// Starts a program with stdout and stderr in one pipe.
    pub(crate) fn spawn(mut command: Command) -> io::Result<Child> {
        let (output, writer) = io::pipe()?;
        let child = command
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .process_group(0)
            .spawn()?;
        let pid = child.id() as libc::pid_t;
        Ok(Child {
            pid,
            output: File::from(OwnedFd::from(output)),
            link: None,
        })
    }

    /// Waits for the end of the child and passes each line of output to `on_line`. The status is
    /// `None` if the child was killed at the limit. The outcome is that of a forked test.
    pub(crate) fn wait(
        mut self,
        limit: Duration,
        on_line: &mut dyn FnMut(&str),
    ) -> io::Result<(Option<ExitStatus>, Option<Outcome>)> {
        let deadline = Instant::now() + limit;
        let mut lines = Lines::default();
        let mut open = true;
        let status = loop {
            if open && readable(&self.output)? {
                open = lines.read_from(&mut self.output, on_line)?;
                // A child that only prints must not run past its limit.
                if open && Instant::now() < deadline {
                    continue;
                }
            } else if !open {
                std::thread::sleep(Duration::from_millis(1));
            }
            let status = process::wait(self.pid, libc::WNOHANG)?;
            if status.is_some() || Instant::now() >= deadline {
                break status;
            }
        };
        // SAFETY: The system call takes no pointers; it may fail, if the group is empty.
        unsafe { libc::kill(-self.pid, libc::SIGKILL) };
        if status.is_none() {
            process::wait(self.pid, 0)?;
        }
        while open && readable(&self.output)? {
            open = lines.read_from(&mut self.output, on_line)?;
        }
        lines.finish(on_line);

        let reported = status.is_some_and(|status| status.code() == Some(process::REPORTED));
        let outcome = self
            .link
            .filter(|_| reported)
            .map(|mut link| link.outcome());
        Ok((status, outcome))
    }
}

/// Describes how a child ended, from the status that [`Child::wait`] returned.
pub(crate) fn describe(status: Option<ExitStatus>, limit: Duration) -> String {
    match status {
        Some(status) => status.to_string(),
        None => format!("no end after {} s, killed", limit.as_secs()),
    }
}

/// Waits one tick for output; end of file counts as readable.
fn readable(file: &File) -> io::Result<bool> {
    let mut fd = libc::pollfd {
        fd: file.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: `fd` is one pollfd, which lives through the call.
    match unsafe { libc::poll(&mut fd, 1, TICK.as_millis() as libc::c_int) } {
        -1 => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            error => Err(error),
        },
        count => Ok(count > 0),
    }
}

/// Cuts a stream of bytes into lines.
#[derive(Default)]
struct Lines {
    pending: Vec<u8>,
}

impl Lines {
    /// Reads once; returns `false` at end of file.
    fn read_from(&mut self, file: &mut File, on_line: &mut dyn FnMut(&str)) -> io::Result<bool> {
        let mut buffer = [0; 4096];
        let length = file.read(&mut buffer)?;
        self.pending.extend_from_slice(&buffer[..length]);
        while let Some(end) = self.pending.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.pending.drain(..=end).collect();
            on_line(&String::from_utf8_lossy(&line[..end]));
        }
        Ok(length > 0)
    }

    /// Emits a last line that has no newline.
    fn finish(&mut self, on_line: &mut dyn FnMut(&str)) {
        if !self.pending.is_empty() {
            on_line(&String::from_utf8_lossy(&self.pending));
            self.pending.clear();
        }
    }
}

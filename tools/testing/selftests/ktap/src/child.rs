// SPDX-License-Identifier: GPL-2.0
//! Child processes with a time limit, their output read line by line.
//!
//! A child leads a process group of its own, and the whole group is killed
//! when the child is done: nothing a test forgot keeps running beside the next
//! one.

use std::fs::File;
use std::io;
use std::io::PipeReader;
use std::io::PipeWriter;
use std::io::Read;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;
use std::time::Instant;

use crate::Failure;
use crate::Outcome;

/// Exit status of a forked test that has written its outcome.
pub(crate) const REPORTED: i32 = 77;

/// Longest outcome text; one write of it to a pipe is atomic (PIPE_BUF).
const MAX_OUTCOME: usize = 4096;

/// How often a silent child is looked at.
const TICK: Duration = Duration::from_millis(50);

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Exited(i32),
    Signalled(i32),
    TimedOut,
}

/// A running child and the read ends of its pipes.
pub(crate) struct Child {
    pid: libc::pid_t,
    output: File,
    outcome: Option<PipeReader>,
}

impl Child {
    /// Forks a child that runs `test` and reports through a pipe.
    pub(crate) fn fork(test: fn() -> Outcome) -> io::Result<Child> {
        let (output, output_writer) = io::pipe()?;
        let (outcome, outcome_writer) = io::pipe()?;
        // What is still buffered here would be printed by the child as well.
        io::stdout().flush()?;
        // SAFETY: the selftest programs call this from their only thread, so
        // that the child may go on as if it were the parent.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => Err(io::Error::last_os_error()),
            0 => run_test(test, output_writer, outcome_writer),
            _ => Ok(Child {
                pid: own_group(pid),
                output: File::from(OwnedFd::from(output)),
                outcome: Some(outcome),
            }),
        }
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
            outcome: None,
        })
    }

    /// Waits for the end, gives each line of output to `on_line`.
    ///
    /// The outcome is meaningful only with `End::Exited(REPORTED)`.
    pub(crate) fn wait(
        mut self,
        limit: Duration,
        on_line: &mut dyn FnMut(&str),
    ) -> io::Result<(End, Outcome)> {
        let deadline = Instant::now() + limit;
        let mut lines = Lines::default();
        let mut open = true;
        let end = loop {
            if open && readable(&self.output)? {
                open = lines.read_from(&mut self.output, on_line)?;
                // Output alone may not keep a test alive past its limit.
                if open && Instant::now() < deadline {
                    continue;
                }
            } else if !open {
                std::thread::sleep(Duration::from_millis(1));
            }
            if let Some(end) = try_wait(self.pid)? {
                break end;
            }
            if Instant::now() >= deadline {
                break End::TimedOut;
            }
        };
        kill_group(self.pid);
        if end == End::TimedOut {
            reap(self.pid);
        }
        while open && readable(&self.output)? {
            open = lines.read_from(&mut self.output, on_line)?;
        }
        lines.finish(on_line);

        match self.outcome.take() {
            Some(mut pipe) if end == End::Exited(REPORTED) => Ok((end, read_outcome(&mut pipe)?)),
            _ => Ok((end, Ok(()))),
        }
    }
}

/// The child's side of a fork.
fn run_test(test: fn() -> Outcome, output: PipeWriter, mut outcome: PipeWriter) -> ! {
    // SAFETY: plain system calls on this process and on pipes it owns.
    unsafe {
        libc::setpgid(0, 0);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::dup2(output.as_raw_fd(), libc::STDOUT_FILENO);
        libc::dup2(output.as_raw_fd(), libc::STDERR_FILENO);
    }
    drop(output);
    // A panic shall end this process, also where panics unwind.
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        default_hook(info);
        std::process::abort()
    }));

    let mut text = match test() {
        Ok(()) => "P".to_string(),
        Err(Failure::Fail(why)) => format!("F{why}"),
        Err(Failure::Skip(why)) => format!("S{why}"),
    };
    let mut end = text.len().min(MAX_OUTCOME);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);

    let _ = io::stdout().flush();
    let written = outcome.write_all(text.as_bytes());
    let status = if written.is_ok() { REPORTED } else { 1 };
    // SAFETY: ends this process without running the parent's exit handlers.
    unsafe { libc::_exit(status) }
}

fn read_outcome(pipe: &mut PipeReader) -> io::Result<Outcome> {
    let mut buffer = [0; MAX_OUTCOME];
    let length = pipe.read(&mut buffer)?;
    let text = String::from_utf8_lossy(&buffer[..length]);
    let mut chars = text.chars();
    Ok(match chars.next() {
        Some('P') => Ok(()),
        Some('S') => Err(Failure::Skip(chars.as_str().to_string())),
        Some('F') => Err(Failure::Fail(chars.as_str().to_string())),
        _ => Err(Failure::Fail("the test reported nothing".to_string())),
    })
}

/// Puts the child into its own group from this side too: either may be first.
fn own_group(pid: libc::pid_t) -> libc::pid_t {
    // SAFETY: a system call without pointers; failure means the child was first.
    unsafe { libc::setpgid(pid, pid) };
    pid
}

fn kill_group(pid: libc::pid_t) {
    // SAFETY: a system call without pointers; an empty group is no error here.
    unsafe { libc::kill(-pid, libc::SIGKILL) };
}

fn reap(pid: libc::pid_t) {
    // SAFETY: `status` may be null; the child is ours and was killed.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
}

fn try_wait(pid: libc::pid_t) -> io::Result<Option<End>> {
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    match unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        _ if libc::WIFSIGNALED(status) => Ok(Some(End::Signalled(libc::WTERMSIG(status)))),
        _ => Ok(Some(End::Exited(libc::WEXITSTATUS(status)))),
    }
}

/// Waits a tick for output; end of file counts as readable.
fn readable(file: &File) -> io::Result<bool> {
    let mut fd = libc::pollfd {
        fd: file.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one pollfd, alive during the call.
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
    /// Reads once; false at end of file.
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

    /// Hands out a last line that has no newline.
    fn finish(&mut self, on_line: &mut dyn FnMut(&str)) {
        if !self.pending.is_empty() {
            on_line(&String::from_utf8_lossy(&self.pending));
            self.pending.clear();
        }
    }
}

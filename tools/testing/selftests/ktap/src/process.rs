// SPDX-License-Identifier: GPL-2.0
//! Processes that work in step with the test that forks them.

use std::io;
use std::io::PipeReader;
use std::io::PipeWriter;
use std::io::Read;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use crate::Failure;
use crate::OrFail;
use crate::Outcome;
use crate::os_result;

/// Exit status of a forked process that has reported its outcome.
pub(crate) const REPORTED: i32 = 77;

/// Longest report of an outcome; one write of it to a pipe is atomic (PIPE_BUF).
const MAX_REPORT: usize = 4096;

/// Message without an outcome. An outcome begins with one of the other three.
const TOLD: u8 = b'.';
const PASSED: u8 = b'P';
const FAILED: u8 = b'F';
const SKIPPED: u8 = b'S';

/// A user without privileges.
pub const NOBODY: libc::uid_t = 65534;

/// Waits for a child; returns `None` if `flags` has WNOHANG and the child still runs.
pub(crate) fn wait(pid: libc::pid_t, flags: libc::c_int) -> io::Result<Option<ExitStatus>> {
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    let ended = os_result(unsafe { libc::waitpid(pid, &mut status, flags) })? != 0;
    Ok(ended.then(|| ExitStatus::from_raw(status)))
}

/// One end of a conversation between two processes.
pub struct Link {
    from: PipeReader,
    to: PipeWriter,
}

impl Link {
    /// Creates the two ends of a new conversation.
    pub fn pair() -> io::Result<(Link, Link)> {
        let (from_second, to_first) = io::pipe()?;
        let (from_first, to_second) = io::pipe()?;
        let first = Link {
            from: from_second,
            to: to_second,
        };
        let second = Link {
            from: from_first,
            to: to_first,
        };
        Ok((first, second))
    }

    /// Wakes the other side from [`listen`](Self::listen).
    #[track_caller]
    pub fn tell(&mut self) -> Outcome {
        self.to.write_all(&[TOLD]).or_fail("the peer is gone")
    }

    /// Sleeps until the other side sends a message. If the other side is a peer that ends instead,
    /// returns its failure.
    #[track_caller]
    pub fn listen(&mut self) -> Outcome {
        match self.read().or_fail("the peer is gone")? {
            None => Ok(()),
            Some(Ok(())) => crate::fail("the peer ended"),
            Some(failure) => failure,
        }
    }

    /// Returns whether [`listen`](Self::listen) would return at once.
    pub fn is_told(&self) -> bool {
        let mut fd = libc::pollfd {
            fd: self.from.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: `fd` is one pollfd, which lives through the call.
        unsafe { libc::poll(&mut fd, 1, 0) == 1 }
    }

    /// Reads the next message: `None` if it has no outcome, else the other side's outcome.
    fn read(&mut self) -> io::Result<Option<Outcome>> {
        let mut kind = [0];
        self.from.read_exact(&mut kind)?;
        if kind == [TOLD] {
            return Ok(None);
        }
        let mut length = [0; 2];
        self.from.read_exact(&mut length)?;
        let mut text = vec![0; u16::from_ne_bytes(length).into()];
        self.from.read_exact(&mut text)?;
        let text = String::from_utf8_lossy(&text).into_owned();
        Ok(Some(match kind {
            [PASSED] => Ok(()),
            [SKIPPED] => Err(Failure::Skip(text)),
            _ => Err(Failure::Fail(text)),
        }))
    }

    /// Returns the outcome that a process has reported, and skips other messages.
    pub(crate) fn outcome(&mut self) -> Outcome {
        loop {
            if let Some(outcome) = self.read()? {
                return outcome;
            }
        }
    }

    fn report(&mut self, outcome: &Outcome) -> io::Result<()> {
        let (kind, text) = match outcome {
            Ok(()) => (PASSED, ""),
            Err(Failure::Fail(why)) => (FAILED, why.as_str()),
            Err(Failure::Skip(why)) => (SKIPPED, why.as_str()),
        };
        let text = &text[..text.floor_char_boundary(MAX_REPORT - 3)];
        let mut bytes = vec![kind];
        // CAST: The text has at most MAX_REPORT bytes.
        bytes.extend((text.len() as u16).to_ne_bytes());
        bytes.extend(text.as_bytes());
        self.to.write_all(&bytes)
    }
}

/// Forks; the child runs `body`, reports its outcome and exits.
///
/// Only for programs with one thread: the child continues with a copy of the parent's memory.
pub(crate) fn fork(body: impl FnOnce(&mut Link) -> Outcome) -> io::Result<(libc::pid_t, Link)> {
    let (ours, mut theirs) = Link::pair()?;
    // Flush first, or the child would print what is still buffered as well.
    io::stdout().flush()?;
    // SAFETY: There is one thread, so the child finds no lock taken.
    match os_result(unsafe { libc::fork() })? {
        0 => {
            drop(ours);
            abort_on_panic();
            let outcome = body(&mut theirs);
            let _ = io::stdout().flush();
            let reported = theirs.report(&outcome).is_ok();
            // SAFETY: The call ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(if reported { REPORTED } else { 1 }) }
        }
        pid => Ok((pid, ours)),
    }
}

/// Makes a panic end this process, even where panics unwind.
fn abort_on_panic() {
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        default_hook(info);
        std::process::abort()
    }));
}

/// A forked process. It is killed if the test ends first.
pub struct Peer {
    pid: libc::pid_t,
    link: Link,
}

impl Peer {
    /// Forks; the child runs `body` and exits. [`join`](Self::join) returns its outcome.
    ///
    /// Only for programs with one thread.
    #[track_caller]
    pub fn spawn(body: impl FnOnce(&mut Link) -> Outcome) -> Result<Peer, Failure> {
        let (pid, link) = fork(body).or_fail("fork")?;
        Ok(Peer { pid, link })
    }

    /// Returns the process number.
    pub fn pid(&self) -> libc::pid_t {
        self.pid
    }

    /// Wakes the peer from its [`Link::listen`].
    #[track_caller]
    pub fn tell(&mut self) -> Outcome {
        self.link.tell()
    }

    /// Sleeps until the peer sends a message, as [`Link::listen`] does.
    #[track_caller]
    pub fn listen(&mut self) -> Outcome {
        self.link.listen()
    }

    /// Returns whether the peer has ended. Does not wait for it: [`join`](Self::join) does.
    pub fn has_ended(&self) -> bool {
        // SAFETY: `info` is plain data that lives through the call. WNOWAIT leaves the process to
        // be waited for later.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let id = self.pid.unsigned_abs();
            let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            libc::waitid(libc::P_PID, id, &mut info, flags) == 0 && info.si_pid() == self.pid
        }
    }

    /// Waits until the peer ends, and returns its exit status.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = wait(self.pid, 0)?;
        self.pid = 0;
        status.ok_or_else(|| io::Error::other("waitpid waits"))
    }

    /// Waits until the peer ends. Returns its outcome, or `Ok` if it executed a program that exited
    /// with 0.
    #[track_caller]
    pub fn join(mut self) -> Outcome {
        match self.wait()? {
            status if status.success() => Ok(()),
            status if status.code() == Some(REPORTED) => self.link.outcome(),
            status => crate::fail(format!("the peer's end: {status}")),
        }
    }

    /// Wakes the peer and waits until it ends.
    #[track_caller]
    pub fn tell_and_join(mut self) -> Outcome {
        self.tell()?;
        self.join()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if self.pid > 0 {
            // SAFETY: The process is our own child, and has not been waited for.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            let _ = wait(self.pid, 0);
        }
    }
}

/// Sleeps for a moment, so that another process on this CPU runs (a sleep of a nanosecond would be
/// over before the switch). Only makes a system call, so EBB handlers may use it.
pub fn give_way() {
    let moment = libc::timespec {
        tv_sec: 0,
        tv_nsec: 20_000,
    };
    // SAFETY: `moment` lives through the call, and a null pointer requests no remainder.
    unsafe { libc::nanosleep(&moment, std::ptr::null_mut()) };
}

/// Returns how often this process has given up the CPU voluntarily.
pub fn switches() -> i64 {
    // SAFETY: `usage` is plain data that the kernel fills.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage.ru_nvcsw
    }
}

/// Runs `body` in another thread and waits for its end.
#[track_caller]
pub fn in_thread(body: impl FnOnce() -> Outcome + Send + 'static) -> Outcome {
    let thread = std::thread::spawn(body);
    thread
        .join()
        .unwrap_or_else(|_| crate::fail("the thread panicked"))
}

/// Makes the calling process run as an unprivileged user, irreversibly.
pub fn become_user(id: libc::uid_t) -> io::Result<()> {
    // SAFETY: The system calls take no pointers.
    os_result(unsafe { libc::setresgid(id, id, id) | libc::setresuid(id, id, id) })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check;
    use crate::fail;
    use crate::skip;

    /// Spawns a peer that listens once, sends one message, and ends with `outcome`.
    fn speaker(outcome: Outcome) -> Peer {
        Peer::spawn(|parent| {
            parent.listen()?;
            parent.tell()?;
            outcome
        })
        .unwrap()
    }

    #[test]
    fn peers_work_in_step() {
        let mut peer = speaker(Ok(()));
        assert!(!peer.link.is_told() && !peer.has_ended());
        peer.tell().unwrap();
        assert_eq!(peer.listen(), Ok(()));
        while !peer.has_ended() {
            std::thread::yield_now();
        }
        assert_eq!(peer.join(), Ok(()));
    }

    #[test]
    fn the_outcome_of_a_peer_is_that_of_join_and_listen() {
        for outcome in [skip("no machine"), fail("wrong")] {
            let mut deaf = speaker(outcome.clone());
            deaf.tell().unwrap();
            // `join` skips the message that the peer sent first.
            assert_eq!(deaf.join(), outcome);

            let mut heard = speaker(outcome.clone());
            heard.tell().unwrap();
            assert_eq!(heard.listen(), Ok(()));
            assert_eq!(heard.listen(), outcome);
        }
    }

    #[test]
    fn other_ends_of_a_peer_are_failures() {
        let ends: [fn(); 3] = [
            || std::process::abort(),
            || panic!("on purpose"),
            || std::process::exit(3),
        ];
        for (end, what) in ends
            .into_iter()
            .zip(["signal: 6", "signal: 6", "status: 3"])
        {
            let peer = Peer::spawn(|_| {
                end();
                Ok(())
            });
            let failure = format!("{:?}", peer.unwrap().join());
            assert!(failure.contains(what), "{failure}");
        }
        let early = Peer::spawn(|parent| parent.listen());
        let mut ended = Peer::spawn(|_| Ok(())).unwrap();
        assert!(matches!(ended.listen(), Err(Failure::Fail(_))));
        // This peer still listens, so that the drop kills it.
        drop(early);
    }

    #[test]
    fn a_peer_may_execute_a_program() {
        for (program, well) in [("true", true), ("false", false)] {
            let peer = Peer::spawn(|_| {
                let error = std::os::unix::process::CommandExt::exec(
                    &mut std::process::Command::new(program),
                );
                check!(false, "{error}");
                Ok(())
            });
            assert_eq!(peer.unwrap().join().is_ok(), well, "{program}");
        }
    }
}

// SPDX-License-Identifier: GPL-2.0
//! Peer processes that work in step with the test, on one CPU with it.

use crate::OrFail;
use ktap::Failure;
use ktap::Outcome;
use std::io;
use std::io::PipeReader;
use std::io::PipeWriter;
use std::io::Read;
use std::io::Write;
use std::os::fd::AsRawFd;

/// One end of a conversation between a test and its peer.
pub struct Link {
    from: PipeReader,
    to: PipeWriter,
}

impl Link {
    /// Wakes the other side's `listen`.
    ///
    /// # Errors
    ///
    /// A failure of the test if the other side is gone.
    #[track_caller]
    pub fn tell(&mut self) -> Outcome {
        self.to.write_all(&[1]).or_fail("peer is gone")
    }

    /// Sleeps until the other side tells.
    ///
    /// # Errors
    ///
    /// A failure of the test if the other side ends instead.
    #[track_caller]
    pub fn listen(&mut self) -> Outcome {
        self.from.read_exact(&mut [0]).or_fail("peer ended")
    }

    /// Whether `listen` would return at once.
    #[must_use]
    pub fn is_told(&self) -> bool {
        let mut fd = libc::pollfd {
            fd: self.from.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one pollfd, alive during the call.
        unsafe { libc::poll(&mut fd, 1, 0) == 1 }
    }
}

/// A forked process. Killed if the test ends before it.
pub struct Peer {
    pid: libc::pid_t,
    /// The conversation with it.
    pub link: Link,
}

impl Peer {
    /// Forks; the child runs `body` and exits, telling `join` how it went.
    ///
    /// # Errors
    ///
    /// A failure of the test if there can be no child.
    pub fn spawn(body: impl FnOnce(&mut Link) -> Outcome) -> Result<Self, Failure> {
        let (from_child, to_parent) = io::pipe()?;
        let (from_parent, to_child) = io::pipe()?;
        // SAFETY: a test runs in a process with one thread, so that the child
        // finds no lock taken.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error().into()),
            0 => {
                drop((from_child, to_child));
                let status = match body(&mut Link {
                    from: from_parent,
                    to: to_parent,
                }) {
                    Ok(()) => 0,
                    Err(Failure::Skip(why)) => {
                        println!("peer skipped: {why}");
                        4
                    }
                    Err(Failure::Fail(why)) => {
                        println!("peer: {why}");
                        1
                    }
                };
                // Ends without the parent's exit handlers; stdout is the one
                // buffer to care for.
                let _ = io::stdout().flush();
                // SAFETY: ends this process.
                unsafe { libc::_exit(status) }
            }
            pid => Ok(Self {
                pid,
                link: Link {
                    from: from_child,
                    to: to_child,
                },
            }),
        }
    }

    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> libc::pid_t {
        self.pid
    }

    /// Waits for its end; returns the status of `waitpid(2)`.
    #[must_use]
    pub fn wait(mut self) -> libc::c_int {
        let mut status = 0;
        // SAFETY: `status` lives through the call.
        let pid = unsafe { libc::waitpid(self.pid, &mut status, 0) };
        if pid == self.pid {
            self.pid = 0;
        }
        status
    }

    /// Whether it has ended; `join` tells how.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        // SAFETY: `info` is plain data that lives through the call; the process
        // stays there to be waited for.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let id = self.pid.unsigned_abs();
            let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            libc::waitid(libc::P_PID, id, &mut info, flags) == 0 && info.si_pid() == self.pid
        }
    }

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// A failure of the test unless its body returned without one.
    #[track_caller]
    pub fn join(self) -> Outcome {
        let status = self.wait();
        match status {
            0 => Ok(()),
            _ if libc::WIFSIGNALED(status) => {
                ktap::fail(format!("peer died of signal {}", libc::WTERMSIG(status)))
            }
            _ => ktap::fail(format!("peer failed, status {}", libc::WEXITSTATUS(status))),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if self.pid > 0 {
            // SAFETY: this is our own child, and not yet waited for.
            unsafe {
                libc::kill(self.pid, libc::SIGKILL);
                libc::waitpid(self.pid, std::ptr::null_mut(), 0);
            }
        }
    }
}

/// Binds this thread, and what it forks later, to the CPU it is on; returns the
/// CPU's number.
///
/// # Errors
///
/// A failure of the test.
pub fn stay_on_cpu() -> Result<libc::c_int, Failure> {
    // SAFETY: sched_getcpu takes nothing; a cpu_set_t of zeroes is the empty
    // set, and CPU_SET stays inside it for a number the kernel gave.
    let (cpu, status) = unsafe {
        let cpu = libc::sched_getcpu();
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(usize::try_from(cpu).unwrap_or(0), &mut set);
        (cpu, libc::sched_setaffinity(0, size_of_val(&set), &set))
    };
    match status {
        0 => Ok(cpu),
        _ => Err(io::Error::last_os_error().into()),
    }
}

/// Sleeps for a moment, so that another process on this CPU runs (a sleep of a
/// nanosecond would be over before the switch). Nothing but a system call, so
/// also for EBB handlers.
pub fn give_way() {
    let moment = libc::timespec {
        tv_sec: 0,
        tv_nsec: 20_000,
    };
    // SAFETY: `moment` lives through the call, and no remainder is asked for.
    unsafe { libc::nanosleep(&moment, std::ptr::null_mut()) };
}

/// Number of times this process has given up the CPU of itself.
#[must_use]
pub fn switches() -> i64 {
    // SAFETY: `usage` is plain data that the kernel fills.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage.ru_nvcsw
    }
}

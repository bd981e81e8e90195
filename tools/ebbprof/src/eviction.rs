// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that lose the PMU to a pinned event of the CPU, as `perf stat -a -e cycles:D` has one.
//!
//! The kernel has the thread's event in error state from then on. The thread does not notice: no
//! sample comes. So `ebbprof` looks at the event of each thread that has no new samples, and
//! enables it again, by a copy of the thread's descriptor. The copy is closed at once: one that
//! outlives an exec would have the PMU in the new program's way.
//!
//! The copy is had by the right to trace the process, which the system may refuse (Yama, a process
//! that is not dumpable): of such a thread nobody knows.
//!
//! Process, thread and descriptor are what the program has written. So nothing is taken from a process but
//! from one that takes part in the recording, and nothing but a perf event.

use std::fs;
use std::fs::File;
use std::io;
use std::io::Read;
use std::ops::Add;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::time::Duration;
use std::time::Instant;

use crate::perfdata::Thread;
use crate::system;
use crate::system::Standing;
use crate::system::Start;

/// `PERF_EVENT_IOC_ENABLE` and `PERF_EVENT_IOC_ID`.
const ENABLE: libc::c_ulong = 0x2000_2400;
const ID: libc::c_ulong = 0x4008_2407;

/// The event of a thread.
pub struct Event {
    pub thread: Thread,
    pub descriptor: i32,
    pub id: u64,
    /// Standing of its process when the thread began.
    pub standing: Standing,
}

/// What there is of an event here.
enum Copy {
    Of(File),
    /// The program has closed it, or is no more.
    None,
    /// The system forbids to look.
    Refused,
}

/// An event has the PMU when its thread runs, or has lost it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Well,
    Evicted,
}

impl Event {
    /// The event, opened here too.
    fn open(&self) -> Copy {
        /// `PIDFD_THREAD`, of Linux 6.9.
        const THREAD: libc::c_int = libc::O_EXCL;
        let Thread { pid, tid } = self.thread;
        let start = match self.standing {
            Standing::Member(start) => start,
            Standing::Hidden => return Copy::Refused,
            Standing::Unknown => return Copy::None,
        };
        let open = |id: u32, flags: libc::c_int| {
            // SAFETY: without pointers.
            own(unsafe { libc::syscall(libc::SYS_pidfd_open, id, flags) })
        };
        // A process whose first thread has ended has its files by another thread only.
        let Some(owner) = open(tid, THREAD).or_else(|| open(pid, 0)) else {
            return Copy::None;
        };
        // After the process was opened: so it is the one that began then.
        if Start::of(pid) != Some(start) || !system::has_thread(self.thread) {
            return Copy::None;
        }
        let (which, descriptor) = (owner.as_raw_fd(), self.descriptor);
        // SAFETY: without pointers.
        let copy = unsafe { libc::syscall(libc::SYS_pidfd_getfd, which, descriptor, 0) };
        let Some(copy) = own(copy) else {
            let refused = io::Error::last_os_error().raw_os_error() == Some(libc::EPERM);
            return if refused { Copy::Refused } else { Copy::None };
        };
        let file = File::from(copy);
        if !is_event(&file) {
            return Copy::None;
        }
        let mut id = 0_u64;
        // SAFETY: The call stores to the variable, which lives here.
        let asked = unsafe { libc::ioctl(file.as_raw_fd(), ID, &raw mut id) };
        match asked == 0 && id == self.id {
            true => Copy::Of(file),
            false => Copy::None,
        }
    }
}

/// Whether this is a perf event: of another file the request may be anything.
fn is_event(file: &File) -> bool {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    fs::read_link(link).is_ok_and(|name| name.as_os_str() == "anon_inode:[perf_event]")
}

fn own(descriptor: libc::c_long) -> Option<OwnedFd> {
    // CAST: a descriptor, or -1.
    let descriptor = descriptor as i32;
    // SAFETY: a system call has just opened it.
    (descriptor >= 0).then(|| unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn state(event: &mut File) -> State {
    // One in error state has nothing to read.
    match event.read(&mut [0; 64]) {
        Ok(0) => State::Evicted,
        _ => State::Well,
    }
}

/// How often threads lost the PMU, and how long they were without.
#[derive(Clone, Copy, Default)]
pub struct Total {
    pub times: u64,
    pub duration: Duration,
    /// Threads of which it is not known.
    pub unknown: u64,
}

impl Add for Total {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            times: self.times + other.times,
            duration: self.duration + other.duration,
            unknown: self.unknown + other.unknown,
        }
    }
}

/// The evictions of a thread.
#[derive(Default)]
pub struct Evictions {
    /// What it had written at the last look.
    written: u64,
    /// When it was seen to be without.
    since: Option<Instant>,
    /// When its event was first seen well again, since it was last seen evicted.
    well: Option<Instant>,
    total: Total,
}

impl Evictions {
    /// Looks whether the thread has lost the PMU, and gives it back. `written` tells whether it has
    /// new samples.
    pub fn look(&mut self, event: &Event, written: u64) {
        if written != self.written {
            self.written = written;
            self.end();
            return;
        }
        match event.open() {
            Copy::Of(mut file) => {
                let state = state(&mut file);
                self.seen(state);
                if state == State::Evicted {
                    // SAFETY: without pointers.
                    unsafe { libc::ioctl(file.as_raw_fd(), ENABLE, 0) };
                }
            }
            Copy::Refused => self.total.unknown = 1,
            Copy::None => {}
        }
    }

    /// An event that was enabled is well until its thread runs: perhaps somebody has the PMU still,
    /// and it is evicted again. Only a sample ends an eviction.
    fn seen(&mut self, state: State) {
        let now = Instant::now();
        match state {
            State::Well => self.well = self.well.or(self.since.map(|_| now)),
            State::Evicted => {
                self.well = None;
                if self.since.is_none() {
                    self.since = Some(now);
                    self.total.times += 1;
                }
            }
        }
    }

    fn end(&mut self) {
        self.total = self.total();
        (self.since, self.well) = (None, None);
    }

    /// Up to now, or to when the thread could have had samples again: it may have slept since.
    pub fn total(&self) -> Total {
        let until = self.well.unwrap_or_else(Instant::now);
        let open = self.since.map_or(Duration::ZERO, |since| until - since);
        Total {
            duration: self.total.duration + open,
            ..self.total
        }
    }
}

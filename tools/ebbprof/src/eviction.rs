// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detects threads that lose the PMU to a pinned event of the CPU, such as that of
//! `perf stat -a -e cycles:D`, and gives it back.
//!
//! The kernel sets the thread's event to error state. The thread does not notice, since no sample
//! occurs. So `ebbprof` checks the event of each thread that has no new samples, and enables it
//! again through a copy of the thread's descriptor, which is closed at once.
//!
//! Copying the descriptor needs permission to trace the process, which the system may refuse (Yama,
//! or a process that is not dumpable). The evictions of such a thread remain unknown.
//!
//! The program itself has written the ids of process and thread and the descriptor, and may lie. So
//! only a process that takes part in the recording is accessed, and only if the descriptor is a
//! perf event.

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

/// The ioctl numbers `PERF_EVENT_IOC_ENABLE` and `PERF_EVENT_IOC_ID`.
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

/// Result of copying the descriptor of an event.
enum Copy {
    Of(File),
    /// The program has closed the event, or has ended.
    None,
    /// The system does not permit the copy.
    Refused,
}

/// State of an event: it has the PMU when its thread runs, or has lost it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Well,
    Evicted,
}

impl Event {
    /// Copies the event's descriptor into this process.
    fn open(&self) -> Copy {
        /// The flag `PIDFD_THREAD`, since Linux 6.9.
        const THREAD: libc::c_int = libc::O_EXCL;
        let Thread { pid, tid } = self.thread;
        let start = match self.standing {
            Standing::Member(start) => start,
            Standing::Hidden => return Copy::Refused,
            Standing::Unknown => return Copy::None,
        };
        let open = |id: u32, flags: libc::c_int| {
            // SAFETY: The call takes no pointers.
            own(unsafe { libc::syscall(libc::SYS_pidfd_open, id, flags) })
        };
        // If the first thread of a process has ended, only another thread leads to its files.
        let Some(owner) = open(tid, THREAD).or_else(|| open(pid, 0)) else {
            return Copy::None;
        };
        // Must follow the open: it shows that the opened process is the one that began at that
        // time.
        if Start::of(pid) != Some(start) || !system::has_thread(self.thread) {
            return Copy::None;
        }
        let (which, descriptor) = (owner.as_raw_fd(), self.descriptor);
        // SAFETY: The call takes no pointers.
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
        // SAFETY: The kernel stores to `id` only, a local variable.
        let asked = unsafe { libc::ioctl(file.as_raw_fd(), ID, &raw mut id) };
        match asked == 0 && id == self.id {
            true => Copy::Of(file),
            false => Copy::None,
        }
    }
}

/// Returns whether the file is a perf event; another file might interpret the ioctl in any way.
fn is_event(file: &File) -> bool {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    fs::read_link(link).is_ok_and(|name| name.as_os_str() == "anon_inode:[perf_event]")
}

fn own(descriptor: libc::c_long) -> Option<OwnedFd> {
    // CAST: The value is a descriptor or -1.
    let descriptor = descriptor as i32;
    // SAFETY: A system call has just opened it.
    (descriptor >= 0).then(|| unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn state(event: &mut File) -> State {
    // A read of an event in error state returns 0 bytes.
    match event.read(&mut [0; 64]) {
        Ok(0) => State::Evicted,
        _ => State::Well,
    }
}

/// Number and duration of evictions.
#[derive(Clone, Copy, Default)]
pub struct Total {
    pub times: u64,
    pub duration: Duration,
    /// Number of threads whose evictions are unknown.
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
    /// Number of words that the thread had written at the last look.
    written: u64,
    /// Time at which the thread was first seen evicted.
    since: Option<Instant>,
    /// Time at which its event was first seen well again after the last eviction.
    well: Option<Instant>,
    total: Total,
}

impl Evictions {
    /// Checks whether the thread has lost the PMU, and gives it back. An unchanged `written` means
    /// that the thread has no new samples.
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
                    // SAFETY: The ioctl takes no pointer.
                    unsafe { libc::ioctl(file.as_raw_fd(), ENABLE, 0) };
                }
            }
            Copy::Refused => self.total.unknown = 1,
            Copy::None => {}
        }
    }

    /// Records the state of an event. One that was enabled is well until its thread runs: another
    /// event may still have the PMU and evict it again. So only a sample ends an eviction.
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

    /// Returns the total up to now, or up to the time at which the thread could have had samples
    /// again: it may have slept since.
    pub fn total(&self) -> Total {
        let until = self.well.unwrap_or_else(Instant::now);
        let open = self.since.map_or(Duration::ZERO, |since| until - since);
        Total {
            duration: self.total.duration + open,
            ..self.total
        }
    }
}

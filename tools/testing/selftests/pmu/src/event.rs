// SPDX-License-Identifier: GPL-2.0
//! An open perf event: control, reading, its mmap'ed page.

use std::fs::File;
use std::io;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;

use perf_event_open_sys as sys;
use sys::bindings::PERF_IOC_FLAG_GROUP;

/// What read() of a single event gives (times in ns).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// Events counted.
    pub value: u64,
    /// Time the event was enabled and its task ran.
    pub enabled: u64,
    /// Time of that during which it sat on a counter.
    pub running: u64,
}

impl Count {
    /// The count had the event been on a counter all the time it was enabled.
    pub fn scaled(&self) -> f64 {
        self.value as f64 * self.enabled as f64 / self.running as f64
    }
}

/// What read() of a group's leader gives with PERF_FORMAT_GROUP (times in ns).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupCount {
    /// Time the group was enabled.
    pub enabled: u64,
    /// Time of that during which it was on the PMU.
    pub running: u64,
    /// Value and id of the leader, then of each member in order of opening.
    pub values: Vec<(u64, u64)>,
}

/// An open event; closed on drop.
#[derive(Debug)]
pub struct Event {
    file: File,
}

impl Event {
    pub(crate) fn new(fd: OwnedFd) -> Event {
        Event {
            file: File::from(fd),
        }
    }

    /// Its file descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.file.as_fd()
    }

    /// PERF_EVENT_IOC_ENABLE.
    pub fn enable(&self) -> io::Result<()> {
        // SAFETY: an ioctl without a pointer.
        check(unsafe { sys::ioctls::ENABLE(self.file.as_raw_fd(), 0) })
    }

    /// PERF_EVENT_IOC_DISABLE.
    pub fn disable(&self) -> io::Result<()> {
        // SAFETY: an ioctl without a pointer.
        check(unsafe { sys::ioctls::DISABLE(self.file.as_raw_fd(), 0) })
    }

    /// PERF_EVENT_IOC_RESET.
    pub fn reset(&self) -> io::Result<()> {
        // SAFETY: an ioctl without a pointer.
        check(unsafe { sys::ioctls::RESET(self.file.as_raw_fd(), 0) })
    }

    /// PERF_EVENT_IOC_RESET of the whole group.
    pub fn reset_group(&self) -> io::Result<()> {
        // SAFETY: an ioctl without a pointer.
        check(unsafe { sys::ioctls::RESET(self.file.as_raw_fd(), PERF_IOC_FLAG_GROUP) })
    }

    /// PERF_EVENT_IOC_REFRESH: enables for `overflows` more overflows.
    pub fn refresh(&self, overflows: i32) -> io::Result<()> {
        // SAFETY: an ioctl without a pointer.
        check(unsafe { sys::ioctls::REFRESH(self.file.as_raw_fd(), overflows) })
    }

    /// PERF_EVENT_IOC_PERIOD.
    pub fn set_period(&self, period: u64) -> io::Result<()> {
        let pointer = &raw const period as u64;
        // SAFETY: the argument is the address of a u64 alive during the call.
        check(unsafe { sys::ioctls::PERIOD(self.file.as_raw_fd(), pointer) })
    }

    /// PERF_EVENT_IOC_ID.
    pub fn id(&self) -> io::Result<u64> {
        let mut id = 0;
        // SAFETY: `id` outlives the call.
        check(unsafe { sys::ioctls::ID(self.file.as_raw_fd(), &mut id) })?;
        Ok(id)
    }

    /// Reads value and times.
    ///
    /// An event in error state (a pinned one that does not fit) gives end of
    /// file: `ErrorKind::UnexpectedEof`.
    pub fn read(&self) -> io::Result<Count> {
        let mut bytes = [0; 24];
        (&self.file).read_exact(&mut bytes)?;
        let mut words = words(&bytes);
        let mut next = || words.next().unwrap_or(0);
        Ok(Count {
            value: next(),
            enabled: next(),
            running: next(),
        })
    }

    /// Reads the group; needs `Attr::grouped`.
    pub fn read_group(&self) -> io::Result<GroupCount> {
        let mut bytes = [0; 1024];
        let length = (&self.file).read(&mut bytes)?;
        let mut words = words(&bytes[..length]);
        let mut next = || words.next().ok_or(io::ErrorKind::UnexpectedEof);
        let members = next()?;
        let (enabled, running) = (next()?, next()?);
        let mut values = Vec::new();
        for _ in 0..members {
            values.push((next()?, next()?));
        }
        Ok(GroupCount {
            enabled,
            running,
            values,
        })
    }

    /// Reads whatever the event's read format gives.
    pub fn read_words(&self) -> io::Result<Vec<u64>> {
        let mut bytes = [0; 1024];
        let length = (&self.file).read(&mut bytes)?;
        Ok(words(&bytes[..length]).collect())
    }

    /// Counts what `work` does between enable and disable, from zero.
    pub fn count(&self, work: impl FnOnce()) -> io::Result<u64> {
        self.reset()?;
        self.enable()?;
        work();
        self.disable()?;
        Ok(self.read()?.value)
    }

    /// The least of `tries` counts of `work`, or the first of them that is `enough` at
    /// most: ticks and others' work only add to a count.
    pub fn least_count(&self, tries: usize, enough: u64, work: impl Fn()) -> io::Result<u64> {
        let mut least = u64::MAX;
        for _ in 0..tries {
            least = least.min(self.count(&work)?);
            if least <= enough {
                break;
            }
        }
        Ok(least)
    }

    /// PERF_EVENT_IOC_SET_OUTPUT: records go to the buffer of `other`.
    pub fn redirect_to(&self, other: &Event) -> io::Result<()> {
        let fd = other.file.as_raw_fd();
        // SAFETY: an ioctl without a pointer.
        check(unsafe { sys::ioctls::SET_OUTPUT(self.file.as_raw_fd(), fd) })
    }

    /// Has overflows send `signal` to the calling task.
    pub fn signal_on_overflow(&self, signal: i32) -> io::Result<()> {
        let fd = self.file.as_raw_fd();
        // SAFETY: fcntl commands without pointers, but for F_SETOWN_EX, whose
        // argument outlives the call.
        unsafe {
            let owner = OwnerEx {
                kind: F_OWNER_TID,
                pid: libc::gettid(),
            };
            check(libc::fcntl(fd, libc::F_SETFL, libc::O_ASYNC))?;
            check(libc::fcntl(fd, F_SETSIG, signal))?;
            check(libc::fcntl(fd, F_SETOWN_EX, &raw const owner))
        }
    }
}

// Of <linux/fcntl.h>; libc has them for a part of its targets only.
const F_SETSIG: i32 = 10;
const F_SETOWN_EX: i32 = 15;
const F_OWNER_TID: i32 = 0;

#[repr(C)]
struct OwnerEx {
    kind: i32,
    pid: libc::pid_t,
}

pub(crate) fn check(result: i32) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(8).map(|chunk| {
        chunk
            .iter()
            .rev()
            .fold(0, |word, &byte| word << 8 | u64::from(byte))
    })
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! An open event: control and reading.

use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::os::fd::RawFd;

use perf_event_open_sys::ioctls;

use crate::attr::Attr;
use crate::error::Error;
use crate::error::Result;
use crate::sys::PERF_IOC_FLAG_GROUP;

/// Result of reading a single event. Times are in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// Number of events.
    pub value: u64,
    /// Time for which the event was enabled and its task ran.
    pub enabled: u64,
    /// Part of that time for which the event was on the PMU.
    pub running: u64,
}

impl Count {
    /// Returns the estimated count if the event had been on the PMU for all of `enabled`.
    #[must_use]
    pub fn scaled(&self) -> f64 {
        self.value as f64 * self.enabled as f64 / self.running as f64
    }
}

/// Result of reading a group's leader with PERF_FORMAT_GROUP. Times are in ns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupCount {
    /// Time for which the group was enabled.
    pub enabled: u64,
    /// Part of that time for which the group was on the PMU.
    pub running: u64,
    /// Value and id of the leader, then of each member in the order of opening.
    pub values: Vec<(u64, u64)>,
}

/// Maximum number of words that [`Event::read_words`] and [`Event::read_group`] read.
const MAX_WORDS: usize = 128;

/// An open event; closed on drop.
///
/// Its methods fail with the errno of the system call. Those that read also fail with
/// [`Error::NotScheduled`].
#[derive(Debug)]
pub struct Event {
    fd: OwnedFd,
    attr: Attr,
}

macro_rules! ioctls {
    ($($(#[$doc:meta])* $name:ident, $number:ident, $argument:expr;)*) => {
        $(
            $(#[$doc])*
            pub fn $name(&self) -> Result<()> {
                // SAFETY: The argument is no pointer: the kernel accesses no memory of the caller.
                check(concat!("PERF_EVENT_IOC_", stringify!($number)), unsafe {
                    ioctls::$number(self.as_raw_fd(), $argument)
                })
            }
        )*
    };
}

impl Event {
    pub(crate) fn new(fd: OwnedFd, attr: Attr) -> Self {
        Self { fd, attr }
    }

    /// Returns the request with which the event was opened.
    pub fn attr(&self) -> &Attr {
        &self.attr
    }

    ioctls! {
        /// Enables the event; for a leader, its group.
        enable, ENABLE, 0;
        /// Disables the event; for a leader, its group.
        disable, DISABLE, 0;
        /// Enables every event of this one's group.
        enable_group, ENABLE, PERF_IOC_FLAG_GROUP;
        /// Sets the count to zero.
        reset, RESET, 0;
        /// Sets the counts of the whole group to zero.
        reset_group, RESET, PERF_IOC_FLAG_GROUP;
    }

    /// Enables the event for `overflows` more overflows.
    pub fn refresh(&self, overflows: i32) -> Result<()> {
        // SAFETY: The argument is no pointer: the kernel accesses no memory of the caller.
        check("PERF_EVENT_IOC_REFRESH", unsafe {
            ioctls::REFRESH(self.as_raw_fd(), overflows)
        })
    }

    /// Sets the sample period, or the frequency of an event with `freq`.
    pub fn set_period(&self, period: u64) -> Result<()> {
        let pointer = &raw const period as u64;
        // SAFETY: The argument is the address of a u64 that outlives the call.
        check("PERF_EVENT_IOC_PERIOD", unsafe {
            ioctls::PERIOD(self.as_raw_fd(), pointer)
        })
    }

    /// Returns the id by which groups and samples identify the event.
    pub fn id(&self) -> Result<u64> {
        let mut id = 0;
        // SAFETY: `id` outlives the call.
        check("PERF_EVENT_IOC_ID", unsafe {
            ioctls::ID(self.as_raw_fd(), &mut id)
        })?;
        Ok(id)
    }

    /// Redirects the event's records to the buffer of `other`.
    pub fn redirect_to(&self, other: &Event) -> Result<()> {
        // SAFETY: The argument is no pointer: the kernel accesses no memory of the caller.
        check("PERF_EVENT_IOC_SET_OUTPUT", unsafe {
            ioctls::SET_OUTPUT(self.as_raw_fd(), other.as_raw_fd())
        })
    }

    /// Calls `read(2)` and returns the number of bytes that the kernel wrote.
    pub fn read_bytes(&self, buffer: &mut [u8]) -> Result<usize> {
        let (pointer, length) = (buffer.as_mut_ptr().cast(), buffer.len());
        // SAFETY: The buffer is borrowed exclusively, for its whole length.
        let n = unsafe { libc::read(self.as_raw_fd(), pointer, length) };
        usize::try_from(n).map_err(|_| Error::last("read"))
    }

    /// Reads words, and returns their number, which is at least 1, and an array that starts with
    /// them.
    fn read_array<const N: usize>(&self) -> Result<(usize, [u64; N])> {
        let mut buffer = [[0; 8]; N];
        match self.read_bytes(buffer.as_flattened_mut())? {
            0 => Err(Error::NotScheduled),
            length => Ok((length / 8, buffer.map(u64::from_ne_bytes))),
        }
    }

    /// Reads value and times, with the read format of a new [`Attr`].
    pub fn read(&self) -> Result<Count> {
        let (_, [value, enabled, running]) = self.read_array()?;
        Ok(Count {
            value,
            enabled,
            running,
        })
    }

    /// Reads the whole group, with the read format of [`Attr::grouped`].
    pub fn read_group(&self) -> Result<GroupCount> {
        let (length, words) = self.read_array::<MAX_WORDS>()?;
        let (members, _) = words.get(3..length).unwrap_or_default().as_chunks();
        Ok(GroupCount {
            enabled: words[1],
            running: words[2],
            values: members.iter().map(|&[value, id]| (value, id)).collect(),
        })
    }

    /// Reads the words of any read format.
    pub fn read_words(&self) -> Result<Vec<u64>> {
        let (length, words) = self.read_array::<MAX_WORDS>()?;
        Ok(words[..length].to_vec())
    }

    /// Returns whether an enabled, pinned event is on the PMU whenever its task runs. Returns false
    /// once its group is in error state.
    pub fn is_scheduled(&self) -> Result<bool> {
        // The buffer must be long enough for any read format. Otherwise the kernel fails.
        Ok(self.read_bytes(&mut [0; 8 * MAX_WORDS])? != 0)
    }

    /// Fails with [`Error::NotScheduled`] if [`is_scheduled`](Self::is_scheduled) is false.
    pub fn check_scheduled(&self) -> Result<()> {
        match self.is_scheduled()? {
            true => Ok(()),
            false => Err(Error::NotScheduled),
        }
    }

    /// Resets the count, enables the event for `work`, and disables it.
    pub fn enable_during(&self, work: impl FnOnce()) -> Result<()> {
        self.reset()?;
        self.enable()?;
        work();
        self.disable()
    }

    /// Counts the events during `work`, with the read format of a new [`Attr`].
    pub fn count(&self, work: impl FnOnce()) -> Result<u64> {
        self.enable_during(work)?;
        Ok(self.read()?.value)
    }

    /// Closes the event, like dropping it, but visibly.
    pub fn close(self) {
        drop(self);
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Event {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Enables every event that the calling thread has opened.
///
/// # Errors
///
/// The errno of `prctl(2)`.
pub fn enable_all() -> Result<()> {
    // SAFETY: The call takes no pointer.
    check("PR_TASK_PERF_EVENTS_ENABLE", unsafe {
        libc::prctl(libc::PR_TASK_PERF_EVENTS_ENABLE)
    })
}

/// Disables every event that the calling thread has opened.
///
/// # Errors
///
/// The errno of `prctl(2)`.
pub fn disable_all() -> Result<()> {
    // SAFETY: The call takes no pointer.
    check("PR_TASK_PERF_EVENTS_DISABLE", unsafe {
        libc::prctl(libc::PR_TASK_PERF_EVENTS_DISABLE)
    })
}

fn check(what: &'static str, status: libc::c_int) -> Result<()> {
    match status {
        0.. => Ok(()),
        _ => Err(Error::last(what)),
    }
}

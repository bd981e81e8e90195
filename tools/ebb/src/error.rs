// SPDX-License-Identifier: MIT OR Apache-2.0
//! The errors of this crate.

use core::fmt;

/// An error of an operation on EBBs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A perf event operation failed.
    #[cfg(feature = "std")]
    Event(perf_event::Error),
    /// The kernel does not offer EBB on this machine.
    NoEbb,
    /// No handler is installed on this thread.
    NotInstalled,
    /// EBBHR of this thread holds an address that this copy of the library did not store there.
    /// It belongs to another copy or to other code.
    Foreign {
        /// The address in EBBHR.
        ebbhr: u64,
    },
    /// A handler was installed, but EBBHR is 0: this is the child of a fork.
    Gone,
    /// A handler is in progress on this thread.
    InProgress,
    /// The period is 0 or above 2^63, or not longer than its jitter.
    Period,
    /// There is no event of this name, or its description has a field or value that is not valid.
    NoSuchEvent,
    /// The session has no event with this number.
    NoSuchNumber,
    /// A system call failed.
    System {
        /// Name of the failed operation.
        what: &'static str,
        /// Error number from the kernel.
        errno: i32,
        /// The rule that the request breaks, if the request alone shows it.
        rule: Option<&'static str>,
    },
    /// The event is not on the PMU: another pinned group holds it.
    NotScheduled,
    /// The session's events are revoked: another driver has taken over the PMU.
    Revoked,
    /// The session is paused: its counters cannot be read.
    Paused,
    /// The session belongs to another thread.
    WrongThread,
    /// The thread already has a session that takes EBBs.
    InUse,
    /// The session has started: its events can no longer change.
    Started,
    /// The session was closed, or its thread has ended.
    Closed,
    /// Only the session's own thread can resume it, because that thread has paused the session
    /// itself or lost the PMU inside a handler.
    ResumeByOwner,
}

impl Error {
    /// Returns the errno that fits best, or the kernel's if a system call failed.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            #[cfg(feature = "std")]
            Self::Event(error) => error.errno().unwrap_or(libc::EBUSY),
            Self::System { errno, .. } => *errno,
            Self::NoEbb | Self::Revoked => libc::ENODEV,
            Self::NoSuchEvent | Self::NoSuchNumber => libc::ENOENT,
            Self::NotInstalled | Self::Period => libc::EINVAL,
            Self::Foreign { .. }
            | Self::InProgress
            | Self::NotScheduled
            | Self::Paused
            | Self::InUse
            | Self::Started => libc::EBUSY,
            Self::Gone | Self::Closed => libc::ESRCH,
            Self::WrongThread | Self::ResumeByOwner => libc::EPERM,
        }
    }
}

#[cfg(feature = "std")]
impl From<perf_event::Error> for Error {
    fn from(error: perf_event::Error) -> Self {
        Self::Event(error)
    }
}

impl Error {
    /// Returns the broken rule or another explanation, without numbers.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            #[cfg(feature = "std")]
            Self::Event(perf_event::Error::Os { what, reason, .. }) => reason.unwrap_or(what),
            #[cfg(feature = "std")]
            Self::Event(_) => Self::NotScheduled.reason(),
            Self::NoEbb => "the kernel offers no EBB on this machine (HWCAP2)",
            Self::NotInstalled => "no EBB handler is installed on this thread",
            Self::Foreign { .. } => "EBBHR is in use by other code or another copy of the library",
            Self::Gone => "this is the child of a fork, which has no EBB handler",
            Self::InProgress => "an EBB handler is in progress on this thread",
            Self::Period => "a period must be 1 to 2^63 counts, and longer than its jitter",
            Self::NoSuchEvent => "the PMU has no event of this name in sysfs",
            Self::NoSuchNumber => "the session has no event with this number",
            Self::System { what, rule, .. } => rule.unwrap_or(what),
            Self::NotScheduled => "the event is not on the PMU: another pinned group holds it",
            Self::Revoked => "another driver has taken over the PMU: open a new session",
            Self::Paused => "the session is paused: its counters cannot be read",
            Self::WrongThread => "the session belongs to another thread",
            Self::InUse => "this thread already has a session: close it first",
            Self::Started => "the session has started: add events before that",
            Self::Closed => "the session was closed, or its thread has ended",
            Self::ResumeByOwner => "only the session's own thread can resume it",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            #[cfg(feature = "std")]
            Self::Event(error) => error.fmt(f),
            Self::Foreign { ebbhr } => write!(f, "{} ({ebbhr:#x})", self.reason()),
            Self::System { what, errno, rule } => match rule {
                Some(rule) => write!(f, "{what}: errno {errno}: {rule}"),
                None => write!(f, "{what}: errno {errno}"),
            },
            _ => f.write_str(self.reason()),
        }
    }
}

impl core::error::Error for Error {}

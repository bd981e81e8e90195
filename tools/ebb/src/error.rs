// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can go wrong.

use core::fmt;

/// Why something with EBBs did not work.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A call on an event failed.
    #[cfg(feature = "std")]
    Event(perf_event::Error),
    /// The kernel does not offer EBB on this machine.
    NoEbb,
    /// No handler is installed on this thread.
    NotInstalled,
    /// EBBHR of this thread holds an address that this copy of the library has not put
    /// there: another one's, or another owner's.
    Foreign {
        /// What it holds.
        ebbhr: u64,
    },
    /// A handler was installed, but EBBHR is 0: this is the child of a fork.
    Gone,
    /// A handler is in progress on this thread.
    InProgress,
    /// A period of 0 or above 2^63, or not longer than its jitter.
    Period,
    /// No event of this name, or a field or value that its description may not have.
    NoSuchEvent,
    /// The session has no event of this number.
    NoSuchNumber,
    /// A system call failed.
    System {
        /// What was tried.
        what: &'static str,
        /// The kernel's errno.
        errno: i32,
        /// The rule that the request breaks, if it can be told from the request alone.
        rule: Option<&'static str>,
    },
    /// The event is not on the PMU: another pinned group holds it.
    NotScheduled,
    /// The session's events are revoked: another driver has taken the PMU over.
    Revoked,
    /// The session is paused: its counters are not there.
    Paused,
    /// Another thread's session.
    WrongThread,
    /// The thread has another session that takes EBBs.
    InUse,
    /// The session has started: its events are settled.
    Started,
    /// The session was closed, or its thread has ended.
    Closed,
    /// Only the session's own thread can have its EBBs go on: it has paused them itself, or
    /// lost the PMU in the middle of a handler.
    ResumeByOwner,
}

impl Error {
    /// The errno that says it best; the kernel's if it was the kernel that refused.
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
    /// The rule that was broken, or what else is the matter, without numbers.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            #[cfg(feature = "std")]
            Self::Event(perf_event::Error::Os { what, reason, .. }) => reason.unwrap_or(what),
            #[cfg(feature = "std")]
            Self::Event(_) => Self::NotScheduled.reason(),
            Self::NoEbb => "the kernel offers no EBB on this machine (HWCAP2)",
            Self::NotInstalled => "no EBB handler is installed on this thread",
            Self::Foreign { .. } => {
                "EBBHR is in use: it holds an address that is not of this copy of the library"
            }
            Self::Gone => "EBBHR is 0 again: a fork's child has no EBB handler",
            Self::InProgress => "an EBB handler is in progress on this thread",
            Self::Period => "a period is 1 to 2^63 counts, and longer than its jitter",
            Self::NoSuchEvent => "the PMU has no event of this name in sysfs",
            Self::NoSuchNumber => "the session has no event of this number",
            Self::System { what, rule, .. } => rule.unwrap_or(what),
            Self::NotScheduled => "the event is not on the PMU: another pinned group holds it",
            Self::Revoked => "another driver has taken the PMU over: open a session again",
            Self::Paused => "the session is paused: its counters cannot be read",
            Self::WrongThread => "the session is another thread's",
            Self::InUse => "the thread has another session that takes EBBs",
            Self::Started => "an event is added before the session starts",
            Self::Closed => "the session was closed, or its thread has ended",
            Self::ResumeByOwner => "only the session's own thread can have its EBBs go on",
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

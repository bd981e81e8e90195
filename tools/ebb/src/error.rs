// SPDX-License-Identifier: GPL-2.0
//! What can go wrong, with the errno and, where it can be told, the reason.

use std::fmt;
use std::io;

/// Why something with EBBs did not work.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    Os {
        /// What was tried.
        what: &'static str,
        /// The kernel's errno.
        errno: i32,
        /// The rule that the request breaks, if one is known.
        reason: Option<&'static str>,
    },
    /// `read` gave end of file: the event's group is in error state, because it
    /// could not be put on the PMU beside another pinned group.
    NotScheduled,
    /// The kernel does not offer EBB on this machine.
    NoEbb,
    /// No handler is installed on this thread.
    NotInstalled,
    /// A period outside 1 to 0x8000_0000.
    Period,
}

impl Error {
    pub(crate) fn last(what: &'static str, reason: Option<&'static str>) -> Self {
        let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
        Self::Os {
            what,
            errno,
            reason,
        }
    }

    /// The errno of a failed system call, else `None`.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Os { errno, .. } => Some(*errno),
            _ => None,
        }
    }
}

/// The name of an errno that perf's system calls return, else "errno".
#[must_use]
pub fn errno_name(errno: i32) -> &'static str {
    match errno {
        libc::EPERM => "EPERM",
        libc::ENOENT => "ENOENT",
        libc::ESRCH => "ESRCH",
        libc::EINTR => "EINTR",
        libc::E2BIG => "E2BIG",
        libc::EBADF => "EBADF",
        libc::EACCES => "EACCES",
        libc::EFAULT => "EFAULT",
        libc::EBUSY => "EBUSY",
        libc::ENODEV => "ENODEV",
        libc::EINVAL => "EINVAL",
        libc::EMFILE => "EMFILE",
        libc::ENOSPC => "ENOSPC",
        libc::ENOSYS => "ENOSYS",
        libc::EOVERFLOW => "EOVERFLOW",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        _ => "errno",
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Os {
                what,
                errno,
                reason,
            } => {
                let name = errno_name(*errno);
                write!(f, "{what}: {name} ({errno})")?;
                match reason {
                    Some(reason) => write!(f, ": {reason}"),
                    None => write!(f, ": {}", io::Error::from_raw_os_error(*errno)),
                }
            }
            Self::NotScheduled => f.write_str(
                "the event is not scheduled: another pinned group holds the PMU (read gave EOF)",
            ),
            Self::NoEbb => f.write_str("the kernel offers no EBB on this machine (HWCAP2)"),
            Self::NotInstalled => f.write_str("no EBB handler is installed on this thread"),
            Self::Period => f.write_str("a period is 1 to 0x80000000 counts"),
        }
    }
}

impl std::error::Error for Error {}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can go wrong, with the errno and, where it can be told, the reason.

use std::fmt;
use std::io;

/// What the calls of this crate return.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call on an event failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    Os {
        /// What was tried.
        what: &'static str,
        /// The kernel's errno.
        errno: i32,
        /// What [`Attr::explained_by`](crate::Attr::explained_by) knows about it.
        reason: Option<&'static str>,
    },
    /// `read` gave end of file: the event is pinned and its group is in error state,
    /// because it did not fit on the PMU beside other pinned groups.
    NotScheduled,
}

impl Error {
    pub(crate) fn last(what: &'static str) -> Self {
        Self::Os {
            what,
            errno: io::Error::last_os_error().raw_os_error().unwrap_or(0),
            reason: None,
        }
    }

    /// The errno of a failed system call, else `None`.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Os { errno, .. } => Some(*errno),
            Self::NotScheduled => None,
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
        }
    }
}

impl std::error::Error for Error {}

/// Keeps the errno, not what was tried.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error.errno() {
            Some(errno) => Self::from_raw_os_error(errno),
            None => Self::new(io::ErrorKind::UnexpectedEof, error),
        }
    }
}

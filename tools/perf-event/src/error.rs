// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors: the errno of a system call and, if it is known, the reason.

use std::fmt;
use std::io;

/// Result of the calls of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Reason why a call on an event failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    Os {
        /// Name of the system call or of the ioctl.
        what: &'static str,
        /// The kernel's errno.
        errno: i32,
        /// Reason from the function of [`Attr::explained_by`](crate::Attr::explained_by).
        reason: Option<&'static str>,
    },
    /// `read` returned end of file: the event is pinned and its group is in error state, because it
    /// did not fit on the PMU beside other pinned groups.
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

    /// Returns the errno of a failed system call, otherwise `None`.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Os { errno, .. } => Some(*errno),
            Self::NotScheduled => None,
        }
    }
}

/// Returns the name of an errno that perf's system calls return, otherwise "errno".
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

/// Keeps the errno, but not the name of the call.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error.errno() {
            Some(errno) => Self::from_raw_os_error(errno),
            None => Self::new(io::ErrorKind::UnexpectedEof, error),
        }
    }
}

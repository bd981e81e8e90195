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
    /// A period outside 1 to 0x8000_0000.
    Period,
}

#[cfg(feature = "std")]
impl From<perf_event::Error> for Error {
    fn from(error: perf_event::Error) -> Self {
        Self::Event(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            #[cfg(feature = "std")]
            Self::Event(error) => error.fmt(f),
            Self::NoEbb => f.write_str("the kernel offers no EBB on this machine (HWCAP2)"),
            Self::NotInstalled => f.write_str("no EBB handler is installed on this thread"),
            Self::Foreign { ebbhr } => write!(
                f,
                "EBBHR is in use: it holds {ebbhr:#x}, which is not of this copy of the library"
            ),
            Self::Gone => f.write_str("EBBHR is 0 again: a fork's child has no EBB handler"),
            Self::InProgress => f.write_str("an EBB handler is in progress on this thread"),
            Self::Period => f.write_str("a period is 1 to 0x80000000 counts"),
        }
    }
}

impl core::error::Error for Error {}

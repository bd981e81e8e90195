// SPDX-License-Identifier: GPL-2.0
//! What can go wrong.

use std::fmt;

/// Why something with EBBs did not work.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A call on an event failed.
    Event(perf_event::Error),
    /// The kernel does not offer EBB on this machine.
    NoEbb,
    /// No handler is installed on this thread.
    NotInstalled,
    /// A period outside 1 to 0x8000_0000.
    Period,
}

impl From<perf_event::Error> for Error {
    fn from(error: perf_event::Error) -> Self {
        Self::Event(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Event(error) => error.fmt(f),
            Self::NoEbb => f.write_str("the kernel offers no EBB on this machine (HWCAP2)"),
            Self::NotInstalled => f.write_str("no EBB handler is installed on this thread"),
            Self::Period => f.write_str("a period is 1 to 0x80000000 counts"),
        }
    }
}

impl std::error::Error for Error {}

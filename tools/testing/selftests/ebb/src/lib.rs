// SPDX-License-Identifier: GPL-2.0
//! What the EBB selftests share: sessions with an EBB event, single alerts, peer
//! processes, and a look at whether an instruction traps.
//!
//! Each program beside this library tests one behaviour of the contract between
//! a program and the kernel's PMU driver. Where EBBs are counted, the tests rely
//! on an emulator run with `-icount`, or on real hardware.

pub mod alert;
pub mod cpus;
pub mod neighbour;
pub mod process;
pub mod registers;
pub mod session;
pub mod tracee;
pub mod trap;

use ktap::Failure;
use std::fmt::Display;
use std::panic::Location;

/// Turns an error into a failure of the test, with the place and the thing tried.
pub trait OrFail<T> {
    /// The value, or the failure `what: error`.
    ///
    /// # Errors
    ///
    /// [`Failure::Fail`] if `self` is an error.
    #[track_caller]
    fn or_fail(self, what: &str) -> Result<T, Failure>;
}

impl<T, E: Display> OrFail<T> for Result<T, E> {
    #[track_caller]
    fn or_fail(self, what: &str) -> Result<T, Failure> {
        let at = Location::caller();
        self.map_err(|error| Failure::Fail(format!("{}:{}: {what}: {error}", at.file(), at.line())))
    }
}

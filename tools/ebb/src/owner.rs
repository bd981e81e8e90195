// SPDX-License-Identifier: MIT OR Apache-2.0
//! Determines from EBBHR which code owns a thread's EBBs.

use crate::error::Error;
use crate::save::Save;
use crate::spr;
use crate::thread;

/// The code that owns a thread's EBBs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// No code: EBBHR is 0 and no handler was installed.
    Nobody,
    /// This copy of the library: a handler is installed.
    Library,
    /// No code any more: a handler was installed, but EBBHR is 0. This occurs in the child after
    /// a fork, which inherits the thread's memory but not the state of EBB.
    Gone,
    /// Other code: EBBHR holds an address that this copy of the library did not store there.
    Foreign(u64),
}

/// Returns the owner of this thread's EBBs.
#[must_use]
pub fn owner() -> Owner {
    // SAFETY: Problem state can always read EBBHR.
    let ebbhr = unsafe { spr::read::<{ spr::EBBHR }>() };
    if ebbhr == 0 {
        let installed = thread::with(|t| t.handler.load()) != 0;
        let owners = [Owner::Nobody, Owner::Gone];
        return owners[usize::from(installed)];
    }
    // Does not depend on `handler`: a signal may come between the stores to the two, and its
    // handler may call this, uninstall the EBB handler, or leave by longjmp() in that state.
    let own = [Save::Gprs, Save::AllGprs, Save::Full].map(Save::entry);
    if own.contains(&ebbhr) {
        Owner::Library
    } else {
        Owner::Foreign(ebbhr)
    }
}

/// Fails unless a handler is installed completely on this thread.
pub(crate) fn check_installed() -> Result<(), Error> {
    match owner() {
        // A signal handler with this call has interrupted `install` or `uninstall`.
        Owner::Library if thread::with(|t| t.changing.load()) != 0 => Err(Error::NotInstalled),
        Owner::Library => Ok(()),
        Owner::Nobody => Err(Error::NotInstalled),
        Owner::Gone => Err(Error::Gone),
        Owner::Foreign(ebbhr) => Err(Error::Foreign { ebbhr }),
    }
}

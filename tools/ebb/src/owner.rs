// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose EBBs a thread has: EBBHR tells.

use crate::error::Error;
use crate::save::Save;
use crate::spr;
use crate::thread;

/// Whose EBBs a thread has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Nobody's: EBBHR is 0 and no handler was installed.
    Nobody,
    /// This copy of the library's: a handler is installed.
    Library,
    /// Nobody's any more: a handler was installed, but EBBHR is 0. It is so in the child
    /// after a fork, which inherits the thread's memory but nothing of EBB.
    Gone,
    /// Somebody else's: EBBHR holds an address that this copy of the library has not put
    /// there.
    Foreign(u64),
}

/// Whose EBBs this thread has.
#[must_use]
pub fn owner() -> Owner {
    // SAFETY: EBBHR is always readable.
    let ebbhr = unsafe { spr::read::<{ spr::EBBHR }>() };
    if ebbhr == 0 {
        let installed = thread::with(|t| t.handler.load()) != 0;
        let owners = [Owner::Nobody, Owner::Gone];
        return owners[usize::from(installed)];
    }
    // Whatever `handler` says: a signal may come between the stores to the two, and its handler may
    // ask, uninstall, or jump out and leave it so.
    let own = [Save::Gprs, Save::AllGprs, Save::Full].map(Save::entry);
    if own.contains(&ebbhr) {
        Owner::Library
    } else {
        Owner::Foreign(ebbhr)
    }
}

/// Fails unless a handler is installed on this thread, all of it.
pub(crate) fn check_installed() -> Result<(), Error> {
    match owner() {
        // A signal has interrupted `install` or `uninstall`.
        Owner::Library if thread::with(|t| t.changing.load()) != 0 => Err(Error::NotInstalled),
        Owner::Library => Ok(()),
        Owner::Nobody => Err(Error::NotInstalled),
        Owner::Gone => Err(Error::Gone),
        Owner::Foreign(ebbhr) => Err(Error::Foreign { ebbhr }),
    }
}

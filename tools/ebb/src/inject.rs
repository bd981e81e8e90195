// SPDX-License-Identifier: MIT OR Apache-2.0
//! Branches to the handler without an overflow, to measure the cost of an EBB.

use crate::error::Error;
use crate::owner::check_installed;
use crate::progress;
use crate::progress::Progress;
use crate::reg::Bescr;
use crate::thread;
use crate::thread::Thread;

/// Runs this thread's handler at once, through the whole entry and the return by `rfebb`, as if a
/// performance monitor EBB had occurred. This is for measuring the cost of an EBB. Afterwards EBBs
/// are on, and the counters run.
///
/// While no EBB event is scheduled, the entry's accesses have no effect and
/// [`evicted`](crate::evicted) returns `true`. A signal handler that runs before the entry has
/// begun must not call the library.
///
/// # Errors
///
/// The errors of [`enable`](crate::enable), and [`Error::InProgress`] in a handler.
pub fn inject() -> Result<(), Error> {
    check_installed()?;
    if thread::with(|t| progress::of(t, Bescr::read())) != Progress::None {
        return Err(Error::InProgress);
    }
    thread::with(Thread::reset_rearm);
    // SAFETY: `check_installed` has found an entry of this library in EBBHR.
    unsafe { branch_to_ebbhr() };
    Ok(())
}

/// Branches to EBBHR as the hardware does. The entry returns here by `rfebb`.
///
/// # Safety
///
/// EBBHR holds the address of an entry that preserves all registers.
pub unsafe fn branch_to_ebbhr() {
    // SAFETY: GE is off, so no real EBB can interfere. EBBRR and BESCR are as the hardware sets
    // them at a branch. The caller guarantees that the entry in EBBHR preserves all registers; it
    // returns to label 3 by rfebb.
    unsafe {
        core::arch::asm!(
            "mfspr {t}, 806",
            "clrldi {t}, {t}, 1",
            "ori {t}, {t}, 1",
            "mtspr 806, {t}",
            "bcl 20, 31, 2f",
            "2: mflr {t}",
            "addi {t}, {t}, 3f - 2b",
            "mtspr 805, {t}",
            "mfspr {t}, 804",
            "mtctr {t}",
            "bctr",
            "3:",
            t = out(reg_nonzero) _,
            out("lr") _,
            out("ctr") _,
        );
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! An EBB without an overflow, for measuring what it costs.

use crate::error::Error;
use crate::owner::check_installed;
use crate::progress;
use crate::progress::Progress;
use crate::reg::Bescr;
use crate::thread;
use crate::thread::Thread;

/// Runs this thread's handler here and now, through the whole entry and the
/// return by `rfebb`, as if a performance monitor EBB had happened. For
/// measuring what an EBB costs. Afterwards EBBs are on, and the counters run. While no EBB event
/// is scheduled, the entry's accesses have no effect and [`evicted`](crate::evicted) tells. A
/// signal's handler that comes before the entry has begun must not call the library.
///
/// # Errors
///
/// As [`enable`](crate::enable), and [`Error::InProgress`] in a handler.
pub fn inject() -> Result<(), Error> {
    check_installed()?;
    if thread::with(|t| progress::of(t, Bescr::read())) != Progress::None {
        return Err(Error::InProgress);
    }
    thread::with(Thread::reset_rearm);
    // SAFETY: the entry in EBBHR is this library's.
    unsafe { branch_to_ebbhr() };
    Ok(())
}

/// Branches to EBBHR as the hardware does, and comes back by `rfebb`.
///
/// # Safety
///
/// EBBHR holds the address of an entry that keeps all registers.
pub unsafe fn branch_to_ebbhr() {
    // SAFETY: with GE off no real EBB can disturb; EBBRR and BESCR are as the
    // hardware leaves them at a branch, and the entry in EBBHR keeps all
    // registers and returns to label 3 by rfebb.
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

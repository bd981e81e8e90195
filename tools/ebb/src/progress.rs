// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a handler is in progress below the code that asks.
//!
//! A handler itself may call the library, and so may a signal's handler that came on top of
//! it, on any stack. All of them have the entry's [`Link`] in their chain of frames, for the
//! kernel chains a signal's frame to the interrupted one. Code that was reached by a jump out
//! of the handler has not.
//!
//! Until the entry has made the `Link`, and between its last two instructions, nothing tells
//! that it runs: a signal's handler that comes there (six instructions) must not call the
//! library.

use core::ptr;
use core::sync::atomic::Ordering::Relaxed;

use crate::frame::Link;
use crate::frame::RED_ZONE;
use crate::reg::Bescr;
use crate::spr;
use crate::thread::Thread;

/// What an EBB that is in progress has still to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// None is in progress, but one may have been left by a jump.
    None,
    /// The handler runs: the entry will write BESCR as `Thread::rearm` says.
    Handler,
    /// The entry writes BESCR no more, only its `rfebb` sets GE; or has not begun to.
    Entry,
}

/// How far the EBB of this thread is. `bescr` is the thread's.
pub(crate) fn of(t: &Thread, bescr: Bescr) -> Progress {
    let active = t.active.load(Relaxed) != 0;
    let due = bescr.has(Bescr::PMEO);
    let possible = active || due || bescr.has(Bescr::PME);
    if bescr.has(Bescr::GE) || !possible || !link_is_in_chain() {
        Progress::None
    } else if active && due {
        Progress::Handler
    } else {
        Progress::Entry
    }
}

/// Whether the frames of this thread lead to a [`Link`] of the last EBB.
fn link_is_in_chain() -> bool {
    let mut frame: u64;
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mr {}, 1", out(reg) frame,
            options(nomem, nostack, preserves_flags));
    }
    // SAFETY: EBBRR is always readable.
    let ebbrr = unsafe { spr::read::<{ spr::EBBRR }>() };
    loop {
        // SAFETY: by the ABI r1 points at a frame, whose first word is the address of the
        // next one, or 0 in the last.
        frame = unsafe { ptr::with_exposed_provenance::<u64>(frame as usize).read_volatile() };
        if frame == 0 || !frame.is_multiple_of(8) {
            return false;
        }
        // SAFETY: a frame begins with a header of this size.
        let link = unsafe { ptr::with_exposed_provenance::<Link>(frame as usize).read_volatile() };
        let distance = (size_of::<Link>() + RED_ZONE) as u64;
        if link.nip == ebbrr && link.back_chain == frame + distance {
            return true;
        }
    }
}

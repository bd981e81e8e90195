// SPDX-License-Identifier: MIT OR Apache-2.0
//! The handler: writes a sample to the ring of its thread.
//!
//! It is called with the GPRs alone saved, so it and all that it calls does without vector
//! registers and the C library (`scripts/libebbprof` looks). It takes no lock, and all memory that
//! it touches was touched before.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Acquire;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::Ordering::Release;

use ebb::EbbContext;
use ebb::Rearm;
use ebbprof_ring::ALIGN;
use ebbprof_ring::SAMPLE;
use ebbprof_ring::Slot;

use crate::memory;

/// An EBB of the thread that has `slot`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ebbprof_sample(context: &mut EbbContext<'_>, slot: *mut c_void) {
    // SAFETY: the session was started with a slot that is mapped as long as the program lives.
    let slot = unsafe { &*slot.cast::<Slot>() };
    let written = &slot.written;
    let head = written.head.load(Relaxed);
    if head == written.limit.load(Relaxed) && !make_room(context, slot, head) {
        return;
    }
    let mask = written.mask.load(Relaxed);
    let ring = ptr::from_ref(slot).wrapping_byte_add(ALIGN);
    let write = |n: u64, value: u64| {
        // CAST: usize has 64 bits.
        let word = ring.cast::<AtomicU64>().wrapping_add((n & mask) as usize);
        // SAFETY: a slot's ring is behind it and has `mask + 1` words.
        unsafe { (*word).store(value, Relaxed) };
    };
    write(head, context.time_base());
    write(head + 1, context.interrupted());
    // A reader that sees the new head sees the sample.
    written.head.store(head + SAMPLE, Release);
}

/// Looks how far `ebbprof` has read; tells whether there is room for a sample, and counts the
/// sample as lost if there is none.
#[cold]
fn make_room(context: &mut EbbContext<'_>, slot: &Slot, head: u64) -> bool {
    let written = &slot.written;
    let limit = slot.tail.load(Acquire) + written.mask.load(Relaxed) + 1;
    if limit != head {
        written.limit.store(limit, Relaxed);
        return true;
    }
    written.lost.store(written.lost.load(Relaxed) + 1, Relaxed);
    if memory::control().is_none_or(|control| control.stop.load(Relaxed) != 0) {
        context.rearm(Rearm::Stop);
    }
    false
}

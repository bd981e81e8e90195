// SPDX-License-Identifier: MIT OR Apache-2.0
//! The handler for samples with branches, which it reads from the BHRB.
//!
//! The buffer is frozen in a handler, so it need not be read first.

use core::ffi::c_void;
use core::slice;
use core::sync::atomic::Ordering::Relaxed;

use ebb::EbbContext;
use ebbprof_ring::MOST_BRANCHES;
use ebbprof_ring::MOST_FRAMES;
use ebbprof_ring::SAMPLE;
use ebbprof_ring::first_word;

use crate::handler::Ring;
use crate::handler::Words;
use crate::handler::callers;
use crate::handler::find_room;

/// Handles an EBB of the thread that has `ring`: writes a sample with branches.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ebbprof_sample_branches(context: &mut EbbContext<'_>, ring: *mut c_void) {
    // SAFETY: The session was started with the thread's ring, which lives as long as it has EBBs.
    let ring = unsafe { &*ring.cast::<Ring>() };
    let head = ring.head.load(Relaxed);
    let most = SAMPLE + MOST_BRANCHES + MOST_FRAMES;
    if head >= ring.limit.load(Relaxed) && !find_room(context, ring, most) {
        return;
    }
    let words = Words::at(ring, head);
    words.write(1, context.interrupted());
    // CAST: A usize has 64 bits on POWER.
    let behind = |n: u64| words.0.wrapping_add(n as usize);
    let entries = behind(SAMPLE + 1).cast::<u64>().cast_mut();
    // CAST: A usize has 64 bits on POWER.
    // SAFETY: `find_room` has found room for the largest sample, and `ebbprof` does not read it
    // before the new head is published.
    let entries = unsafe { slice::from_raw_parts_mut(entries, MOST_BRANCHES as usize - 1) };
    // CAST: A usize has 64 bits on POWER.
    let count = context.branches(entries).as_entries().len() as u64;
    words.write(SAMPLE, count);
    let mut more = 1 + count;
    match ring.frames.load(Relaxed) {
        0 => {}
        frames => more += callers(context, ring, Words(behind(more)), frames),
    }
    words.write(0, first_word(context.time_base(), more));
    ring.publish(head + SAMPLE + more);
}

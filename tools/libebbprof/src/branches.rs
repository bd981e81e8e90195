// SPDX-License-Identifier: MIT OR Apache-2.0
//! The handler of samples that have branches: what the BHRB has recorded.
//!
//! The buffer stands still in a handler, so it need not be read first.

use core::ffi::c_void;
use core::slice;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::Ordering::Release;

use ebb::EbbContext;
use ebbprof_ring::MOST_BRANCHES;
use ebbprof_ring::MOST_FRAMES;
use ebbprof_ring::SAMPLE;
use ebbprof_ring::Slot;
use ebbprof_ring::first_word;

use crate::handler::Words;
use crate::handler::callers;
use crate::handler::find_room;

/// An EBB of the thread that has `slot`, as `ebbprof_sample` has it without branches.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ebbprof_sample_branches(context: &mut EbbContext<'_>, slot: *mut c_void) {
    // SAFETY: the session was started with the thread's slot, which is mapped as long as it has EBBs.
    let slot = unsafe { &*slot.cast::<Slot>() };
    let written = &slot.written;
    let head = written.head.load(Relaxed);
    let most = SAMPLE + MOST_BRANCHES + MOST_FRAMES;
    if head >= written.limit.load(Relaxed) && !find_room(context, slot, most) {
        return;
    }
    let words = Words::at(slot, head);
    words.write(1, context.interrupted());
    // CAST: usize has 64 bits.
    let behind = |n: u64| words.0.wrapping_add(n as usize);
    let entries = behind(SAMPLE + 1).cast::<u64>().cast_mut();
    // CAST: as before.
    // SAFETY: a ring has room for all words of a sample, and `ebbprof` does not look at them before
    // it has the new head.
    let entries = unsafe { slice::from_raw_parts_mut(entries, MOST_BRANCHES as usize - 1) };
    // CAST: as before.
    let count = context.branches(entries).as_entries().len() as u64;
    words.write(SAMPLE, count);
    let mut more = 1 + count;
    match written.frames.load(Relaxed) {
        0 => {}
        frames => more += callers(context, written, Words(behind(more)), frames),
    }
    words.write(0, first_word(context.time_base(), more));
    // A reader that sees the new head sees the sample.
    written.head.store(head + SAMPLE + more, Release);
}

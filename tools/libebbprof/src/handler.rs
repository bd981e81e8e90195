// SPDX-License-Identifier: MIT OR Apache-2.0
//! The handler: writes a sample to the ring of its thread.
//!
//! It is called with the GPRs alone saved, so it and all that it calls does without vector
//! registers and the C library (`scripts/libebbprof` looks). It takes no lock, and all memory that
//! it touches was touched before.

use core::arch::asm;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Acquire;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::Ordering::Release;
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::fence;

use ebb::EbbContext;
use ebb::Rearm;
use ebbprof_ring::ALIGN;
use ebbprof_ring::MOST_FRAMES;
use ebbprof_ring::SAMPLE;
use ebbprof_ring::Slot;
use ebbprof_ring::Written;
use ebbprof_ring::first_word;

use crate::memory;
use crate::sessions;

/// An EBB of the thread that has `slot`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ebbprof_sample(context: &mut EbbContext<'_>, slot: *mut c_void) {
    // SAFETY: the session was started with the thread's slot, which is mapped as long as it has EBBs.
    let slot = unsafe { &*slot.cast::<Slot>() };
    let head = slot.written.head.load(Relaxed);
    if head >= slot.written.limit.load(Relaxed) {
        // By a jump: most samples need no frame of their own.
        return make_room(context, slot);
    }
    sample(context, slot, head);
}

#[inline(always)]
fn sample(context: &EbbContext<'_>, slot: &Slot, head: u64) {
    let written = &slot.written;
    let words = Words::at(slot, head);
    words.write(1, context.interrupted());
    let more = match written.frames.load(Relaxed) {
        0 => 0,
        most => callers(context, written, words, most),
    };
    words.write(0, first_word(context.time_base(), more));
    // A reader that sees the new head sees the sample.
    written.head.store(head + SAMPLE + more, Release);
}

/// Where a sample is written.
#[derive(Clone, Copy)]
pub(crate) struct Words(pub(crate) *const AtomicU64);

impl Words {
    /// Those of the sample at `head`.
    #[inline(always)]
    pub(crate) fn at(slot: &Slot, head: u64) -> Self {
        // CAST: usize has 64 bits.
        let place = (head & slot.written.mask.load(Relaxed)) as usize;
        let mut ring = ptr::from_ref(slot).wrapping_byte_add(ALIGN);
        // The compiler would add `ALIGN`, which no displacement has room for, at each access anew.
        // SAFETY: does nothing.
        unsafe {
            asm!("/* {} */", inout(reg) ring, options(pure, readonly, nostack, preserves_flags));
        }
        Self(ring.cast::<AtomicU64>().wrapping_add(place))
    }

    #[inline(always)]
    pub(crate) fn write(self, n: u64, value: u64) {
        // CAST: usize has 64 bits.
        let word = self.0.wrapping_add(n as usize);
        // SAFETY: a slot's ring is behind it, and so many words behind that as a sample has.
        unsafe { (*word).store(value, Relaxed) };
    }
}

/// Writes LR and the return addresses that the back chain leads to; how many words. Which of the
/// first is the caller, `ebbprof` finds out.
///
/// The interrupted code may have anything in r1 and in its frames. So the chain is followed
/// upwards only, and within the thread's stack, all of which is there from r1 up; an address that is not
/// aligned can be read, too.
#[inline(always)]
pub(crate) fn callers(context: &EbbContext<'_>, written: &Written, words: Words, most: u64) -> u64 {
    words.write(SAMPLE, context.link_register());
    let (stack, size) = (
        written.stack.load(Relaxed),
        written.stack_size.load(Relaxed),
    );
    let mut frame = context.stack_pointer();
    if frame.wrapping_sub(stack) >= size {
        return 1;
    }
    words.write(SAMPLE + 1, read(frame + LR_SAVE));
    // Of a place in the stack, two comparisons say whether it is above and within.
    let end = stack.wrapping_add(size);
    let mut n = 2;
    // By four, whose number is known before: so it is CTR that counts, and a caller takes eight
    // instructions, of which one is the loop's.
    for _ in 0..most / AT_ONCE {
        for last in 0..AT_ONCE {
            let next = read(frame);
            if next <= frame || next >= end {
                return n + last;
            }
            frame = next;
            words.write(SAMPLE + n + last, read(frame + LR_SAVE));
        }
        n += AT_ONCE;
    }
    n
}

/// Frames of a round.
const AT_ONCE: u64 = 4;
const _: () = assert!(MOST_FRAMES % AT_ONCE == 2);

/// Place of the LR save word in a frame (ELFv2 ABI, section 2.2.2.1).
const LR_SAVE: u64 = 16;

#[inline(always)]
fn read(address: u64) -> u64 {
    let address = ptr::with_exposed_provenance::<u64>(address as usize);
    // SAFETY: within the stack, at or above r1, where the entry has just written.
    unsafe { address.read_volatile() }
}

#[cold]
#[inline(never)]
fn make_room(context: &mut EbbContext<'_>, slot: &Slot) {
    if find_room(context, slot, SAMPLE + MOST_FRAMES) {
        sample(context, slot, slot.written.head.load(Relaxed));
    }
}

/// Looks how far `ebbprof` has read, and whether there is room for a sample of at most so many words;
/// else counts it as lost. Nor is there any in a pause, which counts none.
#[inline(always)]
pub(crate) fn find_room(context: &mut EbbContext<'_>, slot: &Slot, most: u64) -> bool {
    let written = &slot.written;
    let limit = slot.tail.load(Acquire) + written.mask.load(Relaxed) + 2 - most;
    written.limit.store(limit, Relaxed);
    // Who begins a pause stores 0 there after the state: either that is the last store, or the state is
    // seen here.
    fence(SeqCst);
    if !sessions::takes_samples() {
        written.limit.store(0, Relaxed);
        return false;
    }
    if written.head.load(Relaxed) < limit {
        return true;
    }
    written.lost.store(written.lost.load(Relaxed) + 1, Relaxed);
    if memory::control().is_none_or(|control| control.stop.load(Relaxed) != 0) {
        context.rearm(Rearm::Stop);
    }
    false
}

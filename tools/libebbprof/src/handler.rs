// SPDX-License-Identifier: MIT OR Apache-2.0
//! The handler: writes a sample to the ring of its thread.
//!
//! It is called with the GPRs alone saved, so it and all that it calls does without vector
//! registers and the C library (`scripts/libebbprof` looks). It takes no lock, and all memory that
//! it touches was touched before.
//!
//! Other processes of the recording can write to the slot and its ring, at any time. So whatever says
//! where the handler reads or writes is in [`Ring`], which is the process' own.

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
use ebbprof_ring::first_word;

use crate::memory;
use crate::sessions;

/// The handler's own state: where the thread's ring is, and how full. It is in memory of the process
/// alone, and lives as long as the slot is mapped.
pub(crate) struct Ring {
    /// The thread's slot, in the shared memory.
    pub(crate) slot: *mut Slot,
    /// The ring, behind that: `ALIGN` is more than a load instruction can add.
    words: *const AtomicU64,
    /// Words of the ring less 1.
    pub(crate) mask: u64,
    /// Words written to the ring since it began; the slot has a copy for `ebbprof`.
    pub(crate) head: AtomicU64,
    /// From this place on the handler has to look at [`Slot::tail`] again before it writes a sample, and
    /// whether there is a pause.
    pub(crate) limit: AtomicU64,
    /// Samples that found the ring full; the slot has a copy, too.
    pub(crate) lost: AtomicU64,
    /// Most further words of a sample with its callers, at most [`MOST_FRAMES`]; 0 of samples without.
    pub(crate) frames: AtomicU64,
    /// Lowest address of the thread's stack.
    pub(crate) stack: AtomicU64,
    /// Bytes of it in which a frame may begin.
    pub(crate) stack_size: AtomicU64,
}

impl Ring {
    /// The ring of `size` words, a power of 2, behind `slot`; without callers.
    pub(crate) const fn new(slot: *mut Slot, size: u64) -> Self {
        Self {
            slot,
            words: slot.wrapping_byte_add(ALIGN).cast(),
            mask: size - 1,
            head: AtomicU64::new(0),
            limit: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            frames: AtomicU64::new(0),
            stack: AtomicU64::new(0),
            stack_size: AtomicU64::new(0),
        }
    }

    /// The slot.
    #[inline(always)]
    pub(crate) fn slot(&self) -> &Slot {
        // SAFETY: the slot is mapped as long as this lives; of its fields only atomics are used so.
        unsafe { &*self.slot }
    }

    /// Notes how many words the ring has now, for `ebbprof` too.
    #[inline(always)]
    pub(crate) fn publish(&self, head: u64) {
        self.head.store(head, Relaxed);
        // A reader that sees the new head sees the sample.
        self.slot().written.head.store(head, Release);
    }
}

/// An EBB of the thread that has `ring`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ebbprof_sample(context: &mut EbbContext<'_>, ring: *mut c_void) {
    // SAFETY: the session was started with the thread's ring, which lives as long as it has EBBs.
    let ring = unsafe { &*ring.cast::<Ring>() };
    let head = ring.head.load(Relaxed);
    if head >= ring.limit.load(Relaxed) {
        // By a jump: most samples need no frame of their own.
        return make_room(context, ring);
    }
    sample(context, ring, head);
}

#[inline(always)]
fn sample(context: &EbbContext<'_>, ring: &Ring, head: u64) {
    let words = Words::at(ring, head);
    words.write(1, context.interrupted());
    let more = match ring.frames.load(Relaxed) {
        0 => 0,
        most => callers(context, ring, words, most),
    };
    words.write(0, first_word(context.time_base(), more));
    ring.publish(head + SAMPLE + more);
}

/// Where a sample is written.
#[derive(Clone, Copy)]
pub(crate) struct Words(pub(crate) *const AtomicU64);

impl Words {
    /// Those of the sample at `head`.
    #[inline(always)]
    pub(crate) fn at(ring: &Ring, head: u64) -> Self {
        // CAST: usize has 64 bits.
        let place = (head & ring.mask) as usize;
        Self(ring.words.wrapping_add(place))
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
pub(crate) fn callers(context: &EbbContext<'_>, ring: &Ring, words: Words, most: u64) -> u64 {
    words.write(SAMPLE, context.link_register());
    let (stack, size) = (ring.stack.load(Relaxed), ring.stack_size.load(Relaxed));
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
fn make_room(context: &mut EbbContext<'_>, ring: &Ring) {
    if find_room(context, ring, SAMPLE + MOST_FRAMES) {
        sample(context, ring, ring.head.load(Relaxed));
    }
}

/// Looks how far `ebbprof` has read, and whether there is room for a sample of at most so many words;
/// else counts it as lost. Nor is there any in a pause, which counts none.
#[inline(always)]
pub(crate) fn find_room(context: &mut EbbContext<'_>, ring: &Ring, most: u64) -> bool {
    let head = ring.head.load(Relaxed);
    // No more was read than there is, whatever another process writes. If it writes less than that, samples
    // are lost.
    let read = ring.slot().tail.load(Acquire).min(head);
    let limit = read + ring.mask + 2 - most;
    ring.limit.store(limit, Relaxed);
    // Who begins a pause stores 0 there after the state: either that is the last store, or the state is
    // seen here.
    fence(SeqCst);
    if !sessions::takes_samples() {
        ring.limit.store(0, Relaxed);
        return false;
    }
    if head < limit {
        return true;
    }
    let lost = ring.lost.load(Relaxed) + 1;
    ring.lost.store(lost, Relaxed);
    ring.slot().written.lost.store(lost, Relaxed);
    if memory::control().is_none_or(|control| control.stop.load(Relaxed) != 0) {
        context.rearm(Rearm::Stop);
    }
    false
}

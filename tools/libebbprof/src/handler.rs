// SPDX-License-Identifier: MIT OR Apache-2.0
//! The EBB handler, which writes a sample to the ring of its thread.
//!
//! It runs with only the GPRs saved, so it and everything that it calls must use neither vector
//! registers nor the C library (`scripts/libebbprof` checks that). It takes no lock, and all memory
//! that it accesses was accessed before.
//!
//! Other processes of the recording can write to the slot and its ring at any time. So everything
//! that determines where the handler reads or writes is in [`Ring`], which only this process can
//! access.

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

/// The handler's own state: where the thread's ring is, and how full it is. It is in memory of this
/// process only, and lives as long as the slot is mapped.
pub(crate) struct Ring {
    /// The thread's slot, in the shared memory.
    pub(crate) slot: *mut Slot,
    /// The ring, after the slot. It has its own pointer, because a load cannot add `ALIGN`.
    words: *const AtomicU64,
    /// Number of words of the ring, less 1.
    pub(crate) mask: u64,
    /// Number of words written to the ring since it began; the slot has a copy for `ebbprof`.
    pub(crate) head: AtomicU64,
    /// From this head on the handler must read [`Slot::tail`] again and check for a pause before it
    /// writes a sample.
    pub(crate) limit: AtomicU64,
    /// Number of samples that found the ring full; the slot has a copy for `ebbprof`.
    pub(crate) lost: AtomicU64,
    /// Maximum number of words for the callers of a sample, at most [`MOST_FRAMES`]; 0 for samples
    /// without callers.
    pub(crate) frames: AtomicU64,
    /// Lowest address of the thread's stack.
    pub(crate) stack: AtomicU64,
    /// Size of the part of the stack in which a frame may begin, in bytes.
    pub(crate) stack_size: AtomicU64,
}

impl Ring {
    /// Returns the state of the ring of `size` words, a power of 2, after `slot`; without callers.
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

    /// Returns the slot.
    #[inline(always)]
    pub(crate) fn slot(&self) -> &Slot {
        // SAFETY: The slot is mapped as long as this lives, and only its atomic fields are used
        // this way.
        unsafe { &*self.slot }
    }

    /// Stores the number of words that the ring now has, also for `ebbprof`.
    #[inline(always)]
    pub(crate) fn publish(&self, head: u64) {
        self.head.store(head, Relaxed);
        // Release: a reader that sees the new head also sees the sample.
        self.slot().written.head.store(head, Release);
    }
}

/// Handles an EBB of the thread that has `ring`: writes a sample.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ebbprof_sample(context: &mut EbbContext<'_>, ring: *mut c_void) {
    // SAFETY: The session was started with the thread's ring, which lives as long as it has EBBs.
    let ring = unsafe { &*ring.cast::<Ring>() };
    let head = ring.head.load(Relaxed);
    if head >= ring.limit.load(Relaxed) {
        // A tail call, so that most samples need no frame of their own.
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

/// The place of a sample in the ring.
#[derive(Clone, Copy)]
pub(crate) struct Words(pub(crate) *const AtomicU64);

impl Words {
    /// Returns the place of the sample at `head`.
    #[inline(always)]
    pub(crate) fn at(ring: &Ring, head: u64) -> Self {
        // CAST: A usize has 64 bits on POWER.
        let place = (head & ring.mask) as usize;
        Self(ring.words.wrapping_add(place))
    }

    #[inline(always)]
    pub(crate) fn write(self, n: u64, value: u64) {
        // CAST: A usize has 64 bits on POWER.
        let word = self.0.wrapping_add(n as usize);
        // SAFETY: The ring is after its slot, followed by as many words as the largest sample has.
        unsafe { (*word).store(value, Relaxed) };
    }
}

/// Writes LR and the return addresses of the back chain. Returns the number of words. `ebbprof`
/// determines which of the first ones is the caller.
///
/// The interrupted code may have any value in r1 and in its frames. So the chain is followed only
/// upwards and within the thread's stack, which is mapped from r1 up. An address that is not
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
    // With these, two comparisons check that a frame is above the previous one and in the stack.
    let end = stack.wrapping_add(size);
    let mut n = 2;
    // Four frames per round and a fixed number of rounds make the compiler count in CTR: a caller
    // costs eight instructions, including one for the loop.
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

/// Number of frames per round.
const AT_ONCE: u64 = 4;
const _: () = assert!(MOST_FRAMES % AT_ONCE == 2);

/// Offset of the LR save word in a frame (ELFv2 ABI, section 2.2.2.1).
const LR_SAVE: u64 = 16;

#[inline(always)]
fn read(address: u64) -> u64 {
    let address = ptr::with_exposed_provenance::<u64>(address as usize);
    // SAFETY: The address is in the stack at or above r1, below which the entry has just written.
    unsafe { address.read_volatile() }
}

#[cold]
#[inline(never)]
fn make_room(context: &mut EbbContext<'_>, ring: &Ring) {
    if find_room(context, ring, SAMPLE + MOST_FRAMES) {
        sample(context, ring, ring.head.load(Relaxed));
    }
}

/// Checks whether the ring has room for a sample of at most `most` words, after reading how far
/// `ebbprof` has read. Counts a lost sample if not. Returns `false` during a pause, without
/// counting.
#[inline(always)]
pub(crate) fn find_room(context: &mut EbbContext<'_>, ring: &Ring, most: u64) -> bool {
    let head = ring.head.load(Relaxed);
    // `min`, because another process may write any value to `tail`. If it writes a smaller value
    // than correct, samples are lost.
    let read = ring.slot().tail.load(Acquire).min(head);
    let limit = read + ring.mask + 2 - most;
    ring.limit.store(limit, Relaxed);
    // A pause stores the state and then 0 to `limit`. Either that store comes after the one above,
    // or the state is seen here.
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

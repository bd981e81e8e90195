// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that `ebbprof record` shares with the programs it profiles.
//!
//! It is one file without a name: a [`Control`] that says what to sample, then [`SLOTS`] slots.
//! A thread takes a slot that is free; its EBB handler writes samples to the slot's ring, and
//! `ebbprof` reads them there, also after the thread was killed. The file is sparse: a slot costs
//! memory while it is in use.
//!
//! ```text
//! | Control | Slot | ring | Slot | ring | ...
//! ```
//!
//! All parts begin at multiples of [`ALIGN`].

#![no_std]

extern crate alloc;

mod file;
pub mod futex;
mod view;
mod word;

use core::mem::offset_of;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::AtomicU64;

pub use file::LEAST_DESCRIPTOR;
pub use file::create;
pub use file::is_sealed;
pub use file::move_up;
pub use view::Broken;
pub use view::Position;
pub use view::Sample;
pub use view::SlotView;
pub use view::View;
pub use view::samples;
pub use word::MORE_SHIFT;
pub use word::first_word;
pub use word::time_base;

/// The largest size of a page.
pub const ALIGN: usize = 64 << 10;
/// How many threads can be sampled at a time.
pub const SLOTS: usize = 1024;
/// [`Control::magic`]: of a memory as this file describes it. Whoever changes what is where in it
/// takes the next digit.
pub const MAGIC: u64 = u64::from_le_bytes(*b"ebbprof3");
/// The environment variable with the path of the memory.
pub const VARIABLE: &str = "EBBPROF";
/// The environment variable by which a program with small stacks is sampled, whatever its value.
pub const SMALL_STACKS: &str = "EBBPROF_SMALL_STACKS";
/// Words that each sample begins with: time base and address. In the uppermost byte of the first
/// is how many more there are, of a sample with its callers: LR, the doubleword at r1 + 16, and the
/// LR save word of each further frame that the back chain leads to.
///
/// With [`Control::branches`], the first further word is the number of entries of the BHRB, which
/// follow it, the most recent first; the callers are behind them.
pub const SAMPLE: u64 = 2;
/// The most further words of callers: two more than a multiple of four, as the handler takes two words
/// and then the frames by four.
pub const MOST_FRAMES: u64 = 126;
/// The most further words of branches.
pub const MOST_BRANCHES: u64 = 33;
/// Words behind a ring, for a sample that begins in it. The next one begins behind its own words,
/// counted from the ring's start.
pub const OVERHANG: u64 = 256;
/// How many parts of a tick costs are told in.
pub const COST_UNIT: u64 = 1024;
/// Bytes of a name of an event or of the reason of a refusal.
pub const TEXT: usize = 128;
/// Bytes for the executable mappings of a process.
pub const MAPS: usize = ALIGN - 1024;

/// Values of [`Control::states`]: nobody's; somebody fills it in; a thread's; a thread has ended
/// it, and its samples are to be read; a thread's that is not sampled any more.
pub const FREE: u32 = 0;
/// See [`FREE`].
pub const TAKEN: u32 = 1;
/// See [`FREE`].
pub const LIVE: u32 = 2;
/// See [`FREE`].
pub const ENDED: u32 = 3;
/// See [`FREE`].
pub const PARKED: u32 = 4;

/// Values of [`Slot::origin`]: the first thread of a program that was started; that of a fork's
/// child; a further thread.
pub const PROGRAM: u32 = 0;
/// See [`PROGRAM`].
pub const FORK: u32 = 1;
/// See [`PROGRAM`].
pub const THREAD: u32 = 2;

/// What is to be sampled, and which slots are in use.
#[repr(C)]
pub struct Control {
    /// [`MAGIC`].
    pub magic: u64,
    /// How many programs have a library of another version; it stays here in all versions.
    pub others: AtomicU64,
    /// Words of a ring, a power of 2.
    pub ring: u64,
    /// Counts from one sample to the next.
    pub period: u64,
    /// Most further words of a sample with its callers, as [`MOST_FRAMES`]; 0 of samples without.
    pub frames: u64,
    /// Ticks of the time base that a sample without callers costs, in [`COST_UNIT`]s; 0: not known.
    pub cost_of_sample: AtomicU64,
    /// What each further word of callers costs.
    pub cost_of_caller: AtomicU64,
    /// Which branches a sample has: one more than the Instruction Filtering Mode; 0: none.
    pub branches: u64,
    /// The time base when a program has begun to record itself: slots that began before are not of
    /// this recording. 0 with `ebbprof record`.
    pub start: AtomicU64,
    /// The PID namespace in which the numbers of processes and threads are, by its inode.
    pub namespace: u64,
    /// The event's name, then zeroes.
    pub event: [u8; TEXT],
    /// Not 0: nobody reads the rings any more.
    pub stop: AtomicU32,
    /// No slot from this one on was ever in use.
    pub used: AtomicU32,
    /// Not 0: what samples cost was measured, or is.
    pub costs_measured: AtomicU32,
    /// How many threads found no slot free.
    pub without: AtomicU32,
    /// How many processes are in another PID namespace.
    pub foreign: AtomicU32,
    /// Of each slot.
    pub states: [AtomicU32; SLOTS],
    /// How many threads have no samples as the system had no memory for their slots.
    pub unpopulated: AtomicU32,
    /// How often programs have asked for their rings to be read at once, which `ebbprof` waits for.
    /// If either side does not know of it, programs wait until `ebbprof` looks again.
    pub asked: AtomicU32,
}

/// What the handler of a thread writes for the recorder, alone in its cache line. The handler itself
/// reads its copies, in memory of the process alone.
#[repr(C, align(128))]
pub struct Written {
    /// Words written to the ring since it began, with all of a sample or nothing.
    pub head: AtomicU64,
    /// Reserved: only older libraries use it, as those below.
    pub reserved: u64,
    /// Samples that found the ring full.
    pub lost: AtomicU64,
    /// See `reserved`.
    pub reserved_too: [u64; 4],
}

/// A thread and its ring.
#[repr(C)]
pub struct Slot {
    /// The handler's part.
    pub written: Written,
    /// Words of the ring that `ebbprof` has read.
    pub tail: AtomicU64,
    /// What the thread is: [`PROGRAM`], [`FORK`] or [`THREAD`].
    pub origin: AtomicU32,
    /// Its process.
    pub pid: AtomicU32,
    /// The thread.
    pub tid: AtomicU32,
    /// The parent process.
    pub parent: AtomicU32,
    /// The time base when it began.
    pub begin: AtomicU64,
    /// The time base when it ended, of a thread that ended before its process.
    pub end: AtomicU64,
    /// Its name.
    pub name: [u8; 16],
    /// Length of `reason`: not 0 if the thread could not be sampled.
    pub refused: AtomicU32,
    /// The thread's descriptor of its event plus 1, once samples are taken.
    pub descriptor: AtomicU32,
    /// The kernel's id of that event.
    pub event: AtomicU64,
    /// Odd while `maps` is being written, and another number afterwards.
    pub maps_version: AtomicU32,
    /// The version that `ebbprof` has read, with all samples before it.
    pub maps_read: AtomicU32,
    /// One that it has not read in time: whoever waited for it waits for none before that is read.
    pub maps_late: AtomicU32,
    /// Not 0: EBBs had ceased to come before the thread ended, or its part of the recording.
    pub ceased: AtomicU32,
    /// The time base when they were looked at.
    pub maps_time: AtomicU64,
    /// Length of `maps`.
    pub maps_length: AtomicU32,
    /// Why the thread could not be sampled.
    pub reason: [u8; TEXT],
    /// Lines of `/proc/PID/maps` with the executable mappings.
    pub maps: [u8; MAPS],
}

/// Whether a memory that begins with this word is of another version, from 3 on.
#[must_use]
pub const fn is_other_version(magic: u64) -> bool {
    // CAST: the last letter.
    let version = (magic >> 56) as u8;
    let name = (1 << 56) - 1;
    magic & name == MAGIC & name && magic != MAGIC && version >= b'3'
}

const _: () = assert!(size_of::<Control>() <= ALIGN && size_of::<Slot>() <= ALIGN);

// Whoever changes these changes `MAGIC`: programs have a library that was built at another time.
const _: () = {
    assert!(offset_of!(Control, magic) == 0 && offset_of!(Control, others) == 8);
    assert!(offset_of!(Control, ring) == 16 && offset_of!(Control, frames) == 32);
    assert!(offset_of!(Control, start) == 64 && offset_of!(Control, event) == 80);
    assert!(offset_of!(Control, stop) == 208 && offset_of!(Control, used) == 212);
    assert!(offset_of!(Control, states) == 228 && offset_of!(Control, unpopulated) == 4324);
    assert!(offset_of!(Control, asked) == 4328 && size_of::<Control>() == 4336);
    assert!(offset_of!(Slot, tail) == 128 && offset_of!(Slot, begin) == 152);
    assert!(offset_of!(Slot, name) == 168 && offset_of!(Slot, event) == 192);
    assert!(offset_of!(Slot, maps_version) == 200 && offset_of!(Slot, ceased) == 212);
    assert!(offset_of!(Slot, reason) == 228 && offset_of!(Slot, maps) == 356);
};

/// Where slot `n` begins in a memory with rings of `ring` words.
#[must_use]
pub const fn slot_offset(n: usize, ring: u64) -> usize {
    ALIGN + n * slot_size(ring)
}

/// Bytes of a slot and its ring.
#[must_use]
pub const fn slot_size(ring: u64) -> usize {
    // CAST: some megabytes.
    ALIGN + ((ring + OVERHANG) as usize * 8).next_multiple_of(ALIGN)
}

/// Bytes of the memory.
#[must_use]
pub const fn size(ring: u64) -> usize {
    slot_offset(SLOTS, ring)
}

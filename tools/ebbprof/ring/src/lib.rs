// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that `ebbprof record` shares with the programs it profiles.
//!
//! It is one file without a name: a [`Control`] with the parameters of the recording, followed by
//! [`SLOTS`] slots. A thread takes a free slot. Its EBB handler writes samples to the slot's ring,
//! from which `ebbprof` reads them, also after the thread was killed. The file is sparse: a slot
//! takes memory only while it is in use.
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

/// The largest page size.
pub const ALIGN: usize = 64 << 10;
/// Maximum number of threads that can be sampled at a time.
pub const SLOTS: usize = 1024;
/// Value of [`Control::magic`] for the layout in this file. A change of the layout takes the next
/// digit.
pub const MAGIC: u64 = u64::from_le_bytes(*b"ebbprof3");
/// The environment variable that holds the path of the memory.
pub const VARIABLE: &str = "EBBPROF";
/// The environment variable that allows to sample a program with small stacks, whatever its value.
pub const SMALL_STACKS: &str = "EBBPROF_SMALL_STACKS";
/// Number of words that each sample begins with: time base and address. The uppermost byte of the
/// first word is the number of further words. For a sample with callers these are LR, the
/// doubleword at r1 + 16, and the LR save word of each further frame of the back chain.
///
/// With [`Control::branches`], the first further word is the number of BHRB entries. The entries
/// follow it, the most recent first, and then the callers.
pub const SAMPLE: u64 = 2;
/// Maximum number of further words for callers. It is two more than a multiple of four, because the
/// handler takes two words and then four frames at a time.
pub const MOST_FRAMES: u64 = 126;
/// Maximum number of further words for branches.
pub const MOST_BRANCHES: u64 = 33;
/// Number of words after a ring, for the end of a sample that begins in the ring. The next sample's
/// place is counted from the ring's start, as if the ring had continued there.
pub const OVERHANG: u64 = 256;
/// Unit of costs: this many parts of a tick.
pub const COST_UNIT: u64 = 1024;
/// Size of an event's name or of the reason of a refusal, in bytes.
pub const TEXT: usize = 128;
/// Size of the text of a process's executable mappings, in bytes.
pub const MAPS: usize = ALIGN - 1024;

/// Value of [`Control::states`]: the slot is free.
pub const FREE: u32 = 0;
/// Value of [`Control::states`]: a thread is initialising the slot.
pub const TAKEN: u32 = 1;
/// Value of [`Control::states`]: a thread has the slot.
pub const LIVE: u32 = 2;
/// Value of [`Control::states`]: the thread has ended, and its last samples are still to be read.
pub const ENDED: u32 = 3;
/// Value of [`Control::states`]: a thread has the slot, but is not sampled any more.
pub const PARKED: u32 = 4;

/// Value of [`Slot::origin`]: the first thread of a program that was started.
pub const PROGRAM: u32 = 0;
/// Value of [`Slot::origin`]: the first thread of a forked child.
pub const FORK: u32 = 1;
/// Value of [`Slot::origin`]: a further thread.
pub const THREAD: u32 = 2;

/// Parameters of the recording, and which slots are in use.
#[repr(C)]
pub struct Control {
    /// The value [`MAGIC`].
    pub magic: u64,
    /// Number of programs whose library has another version. It has this offset in all versions.
    pub others: AtomicU64,
    /// Number of words of a ring, a power of 2.
    pub ring: u64,
    /// Counts from one sample to the next.
    pub period: u64,
    /// Maximum number of further words for callers, see [`MOST_FRAMES`]; 0 for samples without.
    pub frames: u64,
    /// Cost of a sample without callers, in [`COST_UNIT`]s of the time base; 0 if not known.
    pub cost_of_sample: AtomicU64,
    /// Cost of each further word of callers.
    pub cost_of_caller: AtomicU64,
    /// The branches that samples have: the Instruction Filtering Mode plus 1; 0 for none.
    pub branches: u64,
    /// Time base at which a program started to record itself; slots that began before do not belong
    /// to this recording. 0 with `ebbprof record`.
    pub start: AtomicU64,
    /// The PID namespace that ids of processes and threads refer to, by its inode.
    pub namespace: u64,
    /// The event's name, then zeroes.
    pub event: [u8; TEXT],
    /// Not 0 if the rings are not read any more.
    pub stop: AtomicU32,
    /// Number of slots that were ever in use: none at or above this index was.
    pub used: AtomicU32,
    /// Not 0 if the cost of samples was measured, or is being measured.
    pub costs_measured: AtomicU32,
    /// Number of threads that found no free slot.
    pub without: AtomicU32,
    /// Number of processes in another PID namespace.
    pub foreign: AtomicU32,
    /// The state of each slot: [`FREE`] to [`PARKED`].
    pub states: [AtomicU32; SLOTS],
    /// Number of threads without samples because there was no memory for their slots.
    pub unpopulated: AtomicU32,
    /// Counts the requests of programs to read their rings at once, for which `ebbprof` waits. If
    /// one side does not implement it, programs wait until `ebbprof` looks again.
    pub asked: AtomicU32,
}

/// The part of a slot that a thread's handler writes for the recorder, alone in its cache line. The
/// handler itself reads its own copies, in memory of its process only.
#[repr(C, align(128))]
pub struct Written {
    /// Number of words written to the ring since it began. Always at the end of a sample.
    pub head: AtomicU64,
    /// Reserved: only older libraries use it, like `reserved_too`.
    pub reserved: u64,
    /// Number of samples that found the ring full.
    pub lost: AtomicU64,
    /// Reserved: only older libraries use it.
    pub reserved_too: [u64; 4],
}

/// The data of a thread; its ring follows.
#[repr(C)]
pub struct Slot {
    /// The part that the handler writes.
    pub written: Written,
    /// Number of words of the ring that `ebbprof` has read.
    pub tail: AtomicU64,
    /// The origin of the thread: [`PROGRAM`], [`FORK`] or [`THREAD`].
    pub origin: AtomicU32,
    /// Id of the thread's process.
    pub pid: AtomicU32,
    /// Id of the thread.
    pub tid: AtomicU32,
    /// Id of the parent process.
    pub parent: AtomicU32,
    /// Time base at which the thread began.
    pub begin: AtomicU64,
    /// Time base at which the thread ended, if it ended before its process.
    pub end: AtomicU64,
    /// The thread's name.
    pub name: [u8; 16],
    /// Length of `reason`; not 0 if the thread could not be sampled.
    pub refused: AtomicU32,
    /// The thread's descriptor of its event plus 1, once samples are taken.
    pub descriptor: AtomicU32,
    /// The kernel's id of that event.
    pub event: AtomicU64,
    /// Odd while `maps` is being written; changes with each write.
    pub maps_version: AtomicU32,
    /// The version that `ebbprof` has read, with all samples before it.
    pub maps_read: AtomicU32,
    /// A version that `ebbprof` has not read in time. The program does not wait for another version
    /// before this one is read.
    pub maps_late: AtomicU32,
    /// Not 0 if EBBs had stopped before the thread ended, or before its part of the recording did.
    pub ceased: AtomicU32,
    /// Time base at which the mappings were read.
    pub maps_time: AtomicU64,
    /// Length of `maps`.
    pub maps_length: AtomicU32,
    /// The reason why the thread could not be sampled.
    pub reason: [u8; TEXT],
    /// Lines of `/proc/PID/maps` with the executable mappings.
    pub maps: [u8; MAPS],
}

/// Returns whether a memory that begins with this word is of another version, from 3 on.
#[must_use]
pub const fn is_other_version(magic: u64) -> bool {
    // CAST: The shift leaves the last character of the version.
    let version = (magic >> 56) as u8;
    let name = (1 << 56) - 1;
    magic & name == MAGIC & name && magic != MAGIC && version >= b'3'
}

const _: () = assert!(size_of::<Control>() <= ALIGN && size_of::<Slot>() <= ALIGN);

// A change of these needs another `MAGIC`: programs may have a library that was built at another
// time.
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

/// Returns the offset of slot `n` in a memory with rings of `ring` words.
#[must_use]
pub const fn slot_offset(n: usize, ring: u64) -> usize {
    ALIGN + n * slot_size(ring)
}

/// Returns the size of a slot and its ring in bytes.
#[must_use]
pub const fn slot_size(ring: u64) -> usize {
    // CAST: The size is some megabytes.
    ALIGN + ((ring + OVERHANG) as usize * 8).next_multiple_of(ALIGN)
}

/// Returns the size of the memory in bytes.
#[must_use]
pub const fn size(ring: u64) -> usize {
    slot_offset(SLOTS, ring)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The recorder's view of the memory.
//!
//! A program can write anything there at any time, also while it is read. So each word is read
//! once, with an atomic or volatile access, and the recorder itself keeps how far it has read a
//! ring. Whatever the memory holds, each call terminates, and its result is not larger than the
//! data it was read from.

use alloc::string::String;
use alloc::vec::Vec;
use core::ptr;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Acquire;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::Ordering::Release;
use core::sync::atomic::fence;
use core::time::Duration;

use crate::ALIGN;
use crate::Control;
use crate::MORE_SHIFT;
use crate::OVERHANG;
use crate::SAMPLE;
use crate::SLOTS;
use crate::Slot;
use crate::futex;
use crate::slot_offset;

/// Returns a reference to an atomic field of a structure in the memory. A reference to the whole
/// structure would be wrong, because the program may change its other fields.
macro_rules! atomic {
    ($pointer:expr, $($field:ident).+) => {{
        // SAFETY: By the contract of `View::new` the field is mapped as long as the view lives; it
        // is an atomic, which other processes may change.
        unsafe { &(*$pointer).$($field).+ }
    }};
}

/// The memory, all of it mapped.
#[derive(Clone, Copy)]
pub struct View {
    control: *const Control,
    /// Number of words of a ring.
    words: u64,
}

impl View {
    /// Returns the view of a memory with rings of `words` words.
    ///
    /// # Safety
    ///
    /// `control` is the start of [`size`](crate::size) bytes that are mapped for reading and
    /// writing as long as the view and its slots are in use. `words` is a power of 2.
    #[must_use]
    pub const unsafe fn new(control: *const Control, words: u64) -> Self {
        Self { control, words }
    }

    /// Returns the counts from one sample to the next.
    #[must_use]
    pub fn period(&self) -> u64 {
        // SAFETY: By the contract of `View::new` the field is mapped; any bits are a valid number.
        unsafe { (&raw const (*self.control).period).read_volatile() }
    }

    /// Returns whether samples have their callers.
    #[must_use]
    pub fn has_callers(&self) -> bool {
        // SAFETY: By the contract of `View::new` the field is mapped; any bits are a valid number.
        unsafe { (&raw const (*self.control).frames).read_volatile() != 0 }
    }

    /// Returns the event's name.
    #[must_use]
    pub fn event(&self) -> String {
        // SAFETY: The memory is not read here; the expression only computes an address.
        let event = unsafe { &raw const (*self.control).event };
        text(&copy(event, crate::TEXT))
    }

    /// Returns the time base at which a program started to record itself, else 0.
    #[must_use]
    pub fn start(&self) -> u64 {
        atomic!(self.control, start).load(Relaxed)
    }

    /// Ends the sampling in all programs.
    pub fn stop(&self) {
        atomic!(self.control, stop).store(1, Relaxed);
    }

    /// Returns the cost of a sample and that of each of its callers, in parts of a tick.
    #[must_use]
    pub fn costs(&self) -> (u64, u64) {
        (
            atomic!(self.control, cost_of_sample).load(Relaxed),
            atomic!(self.control, cost_of_caller).load(Relaxed),
        )
    }

    /// Returns the number of programs whose library has another version.
    #[must_use]
    pub fn others(&self) -> u64 {
        atomic!(self.control, others).load(Relaxed)
    }

    /// Returns the number of processes in another PID namespace.
    #[must_use]
    pub fn foreign(&self) -> u32 {
        atomic!(self.control, foreign).load(Relaxed)
    }

    /// Returns the number of threads that found no free slot, or no address space for it.
    #[must_use]
    pub fn without(&self) -> u32 {
        atomic!(self.control, without).load(Relaxed)
    }

    /// Returns the number of threads that found no memory for their slots.
    #[must_use]
    pub fn unpopulated(&self) -> u32 {
        atomic!(self.control, unpopulated).load(Relaxed)
    }

    /// Returns the number of slots that may be in use.
    #[must_use]
    pub fn used(&self) -> usize {
        (atomic!(self.control, used).load(Acquire) as usize).min(SLOTS)
    }

    /// Returns the state of slot `n`, which may be any number.
    #[must_use]
    pub fn state(&self, n: usize) -> u32 {
        atomic!(self.control, states)[n].load(Acquire)
    }

    /// Returns the number of requests by programs to read their rings.
    #[must_use]
    pub fn asked(&self) -> u32 {
        atomic!(self.control, asked).load(Acquire)
    }

    /// Waits until the number of requests is not `before`, for at most `most`.
    pub fn wait(&self, before: u32, most: Duration) {
        futex::wait(atomic!(self.control, asked), before, most);
    }

    /// Marks slot `n` as free.
    pub fn set_free(&self, n: usize) {
        atomic!(self.control, states)[n].store(crate::FREE, Release);
    }

    /// Returns slot `n`, below [`SLOTS`].
    #[must_use]
    pub fn slot(&self, n: usize) -> SlotView {
        assert!(n < SLOTS, "there is no slot {n}");
        let offset = slot_offset(n, self.words);
        SlotView {
            slot: self.control.wrapping_byte_add(offset).cast(),
            words: self.words,
        }
    }
}

/// The slot of a thread.
#[derive(Clone, Copy)]
pub struct SlotView {
    slot: *const Slot,
    words: u64,
}

/// How far the recorder has read the ring of a thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Position {
    tail: u64,
    broken: bool,
}

impl Position {
    /// Returns whether the ring was [`Broken`]; it is not read any more then.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.broken
    }
}

/// An error: the ring holds data that no handler writes, so the program has written there itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

impl SlotView {
    /// Returns the id of the process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        atomic!(self.slot, pid).load(Relaxed)
    }

    /// Returns the id of the thread.
    #[must_use]
    pub fn tid(&self) -> u32 {
        atomic!(self.slot, tid).load(Relaxed)
    }

    /// Returns the id of the parent process.
    #[must_use]
    pub fn parent(&self) -> u32 {
        atomic!(self.slot, parent).load(Relaxed)
    }

    /// Returns the origin of the thread, see [`Slot::origin`].
    #[must_use]
    pub fn origin(&self) -> u32 {
        atomic!(self.slot, origin).load(Relaxed)
    }

    /// Returns the time base at which the thread began.
    #[must_use]
    pub fn begin(&self) -> u64 {
        atomic!(self.slot, begin).load(Relaxed)
    }

    /// Returns the time base at which the thread ended.
    #[must_use]
    pub fn end(&self) -> u64 {
        atomic!(self.slot, end).load(Relaxed)
    }

    /// Returns the number of samples that found the ring full.
    #[must_use]
    pub fn lost(&self) -> u64 {
        atomic!(self.slot, written.lost).load(Relaxed)
    }

    /// Returns the thread's name.
    #[must_use]
    pub fn name(&self) -> String {
        // SAFETY: The memory is not read here; the expression only computes an address.
        let name = unsafe { &raw const (*self.slot).name };
        text(&copy(name, 16))
    }

    /// Returns the reason why the thread is not sampled, if it is not.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        let length = atomic!(self.slot, refused).load(Acquire) as usize;
        // SAFETY: The memory is not read here; the expression only computes an address.
        let reason = unsafe { &raw const (*self.slot).reason };
        (length != 0).then(|| text(&copy(reason, length)))
    }

    /// Returns the thread's descriptor of its event and the event's id, once samples are taken.
    #[must_use]
    pub fn event(&self) -> Option<(i32, u64)> {
        let descriptor = atomic!(self.slot, descriptor)
            .load(Acquire)
            .checked_sub(1)?;
        let descriptor = i32::try_from(descriptor).ok()?;
        Some((descriptor, atomic!(self.slot, event).load(Relaxed)))
    }

    /// Returns whether EBBs had stopped before the thread ended.
    #[must_use]
    pub fn has_ceased(&self) -> bool {
        atomic!(self.slot, ceased).load(Acquire) != 0
    }

    /// Returns the number of words of samples that the thread has written.
    #[must_use]
    pub fn written(&self) -> u64 {
        atomic!(self.slot, written.head).load(Relaxed)
    }

    /// Returns the process's executable mappings if their version is not `known`: the version, the
    /// time base at which they were read, and the text.
    #[must_use]
    pub fn maps(&self, known: u32) -> Option<(u32, u64, Vec<u8>)> {
        let version = atomic!(self.slot, maps_version);
        let before = version.load(Acquire);
        if before == known || !before.is_multiple_of(2) {
            return None;
        }
        let length = atomic!(self.slot, maps_length).load(Acquire) as usize;
        // SAFETY: The memory is not read here; the expression only computes an address.
        let maps = copy(unsafe { &raw const (*self.slot).maps }, length);
        let time = atomic!(self.slot, maps_time).load(Relaxed);
        // The version must be read again after the text, to detect a write in between.
        fence(Acquire);
        (version.load(Relaxed) == before).then_some((before, time, maps))
    }

    /// Reports to the program that this version was read, and all samples before it.
    pub fn maps_are_read(&self, version: u32) {
        let read = atomic!(self.slot, maps_read);
        read.store(version, Release);
        futex::wake(read);
    }

    /// Returns how full the ring is, 0 to 1. A broken ring counts as empty.
    #[must_use]
    pub fn filled(&self, position: &Position) -> f64 {
        let words = self.written().wrapping_sub(position.tail);
        if position.broken || words > self.words {
            return 0.0;
        }
        words as f64 / self.words as f64
    }

    /// Takes the available samples from the ring: appends their words to `copy`, at most as many as
    /// the ring has. [`samples`] splits them.
    ///
    /// # Errors
    ///
    /// [`Broken`], for this call and all later ones with `position`, if `head` is before the
    /// position, or farther after it than the ring has words, or if a sample extends beyond `head`.
    /// `copy` then has the samples before that.
    pub fn take(&self, position: &mut Position, copy: &mut Vec<u64>) -> Result<(), Broken> {
        if position.broken {
            return Err(Broken);
        }
        let head = atomic!(self.slot, written.head).load(Acquire);
        let mut left = head.wrapping_sub(position.tail);
        position.broken = left > self.words;
        while left > 0 && !position.broken {
            let first = self.word(position.tail, 0);
            let size = SAMPLE + (first >> MORE_SHIFT);
            if size > left {
                position.broken = true;
                break;
            }
            copy.push(first);
            copy.extend((1..size).map(|n| self.word(position.tail, n)));
            position.tail = position.tail.wrapping_add(size);
            left -= size;
        }
        // The handler finds out from this that there is room.
        atomic!(self.slot, tail).store(position.tail, Release);
        if position.broken { Err(Broken) } else { Ok(()) }
    }

    /// Returns word `n`, below [`OVERHANG`] + [`SAMPLE`], of the sample at `place`.
    fn word(&self, place: u64, n: u64) -> u64 {
        let ring = self.slot.wrapping_byte_add(ALIGN).cast::<AtomicU64>();
        // CAST: The sum is below the number of words of a ring and the overhang.
        let word = ring.wrapping_add(((place & (self.words - 1)) + n) as usize);
        // SAFETY: By the contract of `View::new` the ring is mapped, and so are the `OVERHANG`
        // words after it. A sample begins in the ring and has at most `SAMPLE` + 255 words, of
        // which the last is at most `OVERHANG` words after the first.
        unsafe { (*word).load(Relaxed) }
    }
}

// The last word of the longest sample, if that begins in a ring's last word.
const _: () = assert!(SAMPLE + 0xff - 1 <= OVERHANG);

/// A sample, as its handler has written it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample<'a> {
    /// The first word, an argument of [`time_base`](crate::time_base).
    pub first: u64,
    /// The interrupted address.
    pub address: u64,
    /// The further words.
    pub more: &'a [u64],
}

/// Splits the words of [`SlotView::take`] into samples.
pub fn samples(mut words: &[u64]) -> impl Iterator<Item = Sample<'_>> {
    core::iter::from_fn(move || {
        let (&[first, address], rest) = words.split_first_chunk()?;
        // CAST: The shift leaves 8 bits.
        let (more, rest) = rest.split_at_checked((first >> MORE_SHIFT) as usize)?;
        words = rest;
        Some(Sample {
            first,
            address,
            more,
        })
    })
}

/// Returns the first `length` bytes of a text that its program may be changing.
fn copy<const N: usize>(from: *const [u8; N], length: usize) -> Vec<u8> {
    let byte = |n: usize| from.cast::<u8>().wrapping_add(n);
    // SAFETY: The callers pass arrays in the memory, which is mapped by the contract of
    // `View::new`; `n` is below their length.
    let read = |n: usize| unsafe { ptr::read_volatile(byte(n)) };
    (0..length.min(N)).map(read).collect()
}

/// Returns the text before the first NUL.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A mapped memory and random numbers, for all tests of the ring.

use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use ebbprof_ring::ALIGN;
use ebbprof_ring::Control;
use ebbprof_ring::Slot;
use ebbprof_ring::View;
use ebbprof_ring::Written;
use ebbprof_ring::create;
use ebbprof_ring::size;
use ebbprof_ring::slot_offset;
use ebbprof_ring::slot_size;

/// Returns the number in an environment variable, or `usual`.
pub fn number(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |text| text.parse().unwrap())
}

/// A series of pseudo-random numbers.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// A memory as mapped by a program.
pub struct Memory {
    pub fd: i32,
    start: *mut u8,
    words: u64,
}

// SAFETY: All accesses to the memory are atomic.
unsafe impl Sync for Memory {}

impl Memory {
    pub fn new(words: u64) -> Self {
        let fd = create(words).expect("no memory could be made");
        let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: The kernel chooses the place of the new mapping, and the file has its size.
        let start = unsafe { libc::mmap(ptr::null_mut(), size(words), access, shared, fd, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        let start = start.cast();
        Self { fd, start, words }
    }

    pub fn view(&self) -> View {
        // SAFETY: `new` has mapped it, and it stays mapped as long as `self`, which outlives its
        // views.
        unsafe { View::new(self.start.cast::<Control>(), self.words) }
    }

    fn word_at(&self, offset: usize) -> &AtomicU64 {
        assert!(offset + 8 <= size(self.words));
        // SAFETY: The word lies in the mapping, and all accesses are atomic.
        unsafe { &*self.start.wrapping_add(offset).cast() }
    }

    fn of_slot(&self, n: usize, offset: usize) -> &AtomicU64 {
        self.word_at(slot_offset(n, self.words) + offset)
    }

    pub fn head(&self, n: usize) -> u64 {
        self.of_slot(n, offset_of!(Slot, written) + offset_of!(Written, head))
            .load(Relaxed)
    }

    pub fn set_head(&self, n: usize, head: u64) {
        self.of_slot(n, offset_of!(Slot, written) + offset_of!(Written, head))
            .store(head, Relaxed);
    }

    pub fn tail(&self, n: usize) -> u64 {
        self.of_slot(n, offset_of!(Slot, tail)).load(Relaxed)
    }

    pub fn set_tail(&self, n: usize, tail: u64) {
        self.of_slot(n, offset_of!(Slot, tail)).store(tail, Relaxed);
    }

    /// Sets word `word` of slot `n` and its ring.
    pub fn set_any(&self, n: usize, word: u64, value: u64) {
        self.of_slot(n, 8 * word as usize).store(value, Relaxed);
    }

    /// Sets word `word` of the sample at `place`.
    pub fn set_word(&self, n: usize, place: u64, word: u64, value: u64) {
        let place = (place & (self.words - 1)) + word;
        self.of_slot(n, ALIGN + 8 * place as usize)
            .store(value, Relaxed);
    }

    /// Fills the head of the memory and slot `n` with random words.
    pub fn scribble(&self, random: &mut Random, n: usize) {
        // Half of the memories are mostly 0: the reader gets farther in them than in noise.
        let sparse = random.below(2) == 0;
        let slot = slot_offset(n, self.words);
        let head = 0..size_of::<Control>();
        for offset in head.chain(slot..slot + slot_size(self.words)).step_by(8) {
            let word = match random.below(8) {
                0 => u64::MAX,
                1 => random.below(4) << 56,
                _ if sparse => 0,
                _ => random.next(),
            };
            self.word_at(offset).store(word, Relaxed);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `new` mapped and opened them, and no views exist any more.
        unsafe {
            libc::munmap(self.start.cast(), size(self.words));
            libc::close(self.fd);
        }
    }
}

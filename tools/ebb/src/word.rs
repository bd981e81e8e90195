// SPDX-License-Identifier: MIT OR Apache-2.0
//! Words that a thread shares with what interrupts it: the handlers of its EBBs and of its signals.
//!
//! Such a handler runs between any two instructions of the thread. The processor shows it what the
//! thread has stored up to there, in the order of the program; the entries, in assembly, rely on
//! that. A compiler may merge relaxed accesses, and move them across others. So each access to a
//! [`Word`] stays where the source has it, before and after all other accesses to memory: what was
//! stored before a word is seen by a handler that sees the word, and what a handler has stored is
//! seen by the thread's next load. This takes no instruction. It orders nothing for other threads.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::compiler_fence;

/// A word that the thread and its own handlers access in the order of the source.
#[repr(transparent)]
pub(crate) struct Word(AtomicU64);

impl Word {
    pub(crate) const fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    /// Keeps all accesses before it, and after it, on their sides of `access`.
    #[inline]
    fn in_order<R>(&self, access: impl FnOnce(&AtomicU64) -> R) -> R {
        compiler_fence(SeqCst);
        let result = access(&self.0);
        compiler_fence(SeqCst);
        result
    }

    #[inline]
    pub(crate) fn load(&self) -> u64 {
        self.in_order(|word| word.load(Relaxed))
    }

    #[inline]
    pub(crate) fn store(&self, value: u64) {
        self.in_order(|word| word.store(value, Relaxed));
    }

    /// Stores `value`; returns the former one. No handler of the thread runs in between.
    #[inline]
    pub(crate) fn swap(&self, value: u64) -> u64 {
        self.in_order(|word| word.swap(value, Relaxed))
    }

    /// Stores `new` if the value is `current`, else returns the value as an error.
    #[inline]
    pub(crate) fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        self.in_order(|word| word.compare_exchange(current, new, Relaxed, Relaxed))
    }

    /// Replaces the value by what `change` makes of it, as if no handler came in between.
    #[inline]
    pub(crate) fn update(&self, change: impl Fn(u64) -> u64) {
        let mut current = self.load();
        while let Err(value) = self.compare_exchange(current, change(current)) {
            current = value;
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Words that a thread shares with the handlers that interrupt it, of its EBBs and of its signals.
//!
//! Such a handler runs between any two instructions of the thread. The processor guarantees that it
//! sees what the thread has stored up to there, in program order; the entries, in assembly, rely on
//! that. But a compiler may merge relaxed accesses and reorder them with others. So each access to
//! a [`Word`] keeps its position relative to all other memory accesses in the source: a handler
//! that sees a word also sees what was stored before it, and the thread's next load sees what a
//! handler has stored. This costs no instruction. It gives no ordering between threads.

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

    /// Runs `access` such that the compiler moves no memory access across it.
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

    /// Stores `value` and returns the previous one, atomically with respect to the thread's
    /// handlers.
    #[inline]
    pub(crate) fn swap(&self, value: u64) -> u64 {
        self.in_order(|word| word.swap(value, Relaxed))
    }

    /// Stores `new` if the value is `current`, else returns the value as an error.
    #[inline]
    pub(crate) fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        self.in_order(|word| word.compare_exchange(current, new, Relaxed, Relaxed))
    }

    /// Replaces the value by `change` of it, atomically with respect to the thread's handlers.
    #[inline]
    pub(crate) fn update(&self, change: impl Fn(u64) -> u64) {
        let mut current = self.load();
        while let Err(value) = self.compare_exchange(current, change(current)) {
            current = value;
        }
    }
}

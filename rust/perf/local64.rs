// SPDX-License-Identifier: GPL-2.0

//! `local64_t`: a number that the CPU of an event advances, in interrupts too, while other CPUs
//! read it, or set it to 0 (`PERF_EVENT_IOC_RESET`).
//!
//! The kernel crate's atomics are calls of functions of the kernel, on paths on which each
//! instruction counts. Those of `core` do here: none of the operations orders anything else.
//!
//! C header: [`include/asm-generic/local64.h`](srctree/include/asm-generic/local64.h)

use core::sync::atomic::{
    AtomicI64,
    Ordering::Relaxed, //
};

/// A `local64_t`.
#[repr(transparent)]
pub(crate) struct Local64(AtomicI64);

impl Local64 {
    /// Makes a reference of a field of a structure of perf core's.
    ///
    /// # Safety
    ///
    /// `ptr` must be to an aligned `local64_t` that lives for `'a`.
    #[inline]
    pub(super) unsafe fn from_raw<'a>(ptr: *mut i64) -> &'a Self {
        // SAFETY: The caller guarantees a live `local64_t`, which only functions that do not tear
        // it access. The type is transparent over an integer of the same size and alignment.
        unsafe { &*ptr.cast() }
    }

    /// The value.
    #[inline]
    pub(crate) fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }

    /// Sets the value.
    #[inline]
    pub(crate) fn set(&self, value: i64) {
        self.0.store(value, Relaxed);
    }

    /// Sets the value if it is `old`. Returns whether it was.
    #[inline]
    pub(crate) fn replace(&self, old: i64, new: i64) -> bool {
        self.0.compare_exchange(old, new, Relaxed, Relaxed).is_ok()
    }

    /// Adds to the value, which wraps.
    #[inline]
    pub(super) fn add(&self, delta: i64) {
        self.0.fetch_add(delta, Relaxed);
    }
}

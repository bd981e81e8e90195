// SPDX-License-Identifier: GPL-2.0

//! `local64_t`: a number that the CPU of an event increases, also in interrupts, while other CPUs
//! read it, or set it to 0 (`PERF_EVENT_IOC_RESET`).
//!
//! The kernel crate's atomics are function calls, and these paths must be short. The atomics of
//! `core` suffice: no operation here needs an order with other memory accesses.
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
    /// Makes a reference to a field of a structure of perf core.
    ///
    /// # Safety
    ///
    /// `ptr` must be to an aligned `local64_t` that lives for `'a`.
    #[inline]
    pub(super) unsafe fn from_raw<'a>(ptr: *mut i64) -> &'a Self {
        // SAFETY: The caller guarantees a live `local64_t`. Only functions that access it as a
        // whole use it. The type is transparent over an integer of the same size and alignment.
        unsafe { &*ptr.cast() }
    }

    /// Returns the value.
    #[inline]
    pub(crate) fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }

    /// Sets the value.
    #[inline]
    pub(crate) fn set(&self, value: i64) {
        self.0.store(value, Relaxed);
    }

    /// Sets the value if it is `old`. Returns whether it was `old`.
    #[inline]
    pub(crate) fn replace(&self, old: i64, new: i64) -> bool {
        self.0.compare_exchange(old, new, Relaxed, Relaxed).is_ok()
    }

    /// Adds to the value, which wraps on overflow.
    #[inline]
    pub(super) fn add(&self, delta: i64) {
        self.0.fetch_add(delta, Relaxed);
    }
}

// SPDX-License-Identifier: GPL-2.0
//! The way from a handler to the interrupted code and its callers, as an unwinder finds it.

use ebb::spr;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

unsafe extern "C" {
    /// libgcc's unwinder, which `backtrace()` and C++ use.
    fn _Unwind_Backtrace(
        trace: extern "C" fn(*mut c_void, *mut c_void) -> i32,
        argument: *mut c_void,
    ) -> i32;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

static INTERRUPTED: AtomicU64 = AtomicU64::new(0);
static EBBRR: AtomicU64 = AtomicU64::new(0);
static BEHIND: AtomicU64 = AtomicU64::new(0);
static LAST: AtomicU64 = AtomicU64::new(0);

/// What [`find`] has found.
#[derive(Debug)]
pub struct Found {
    /// How often the address in EBBRR.
    pub ebbrr: u64,
    /// How many addresses behind it.
    pub behind: u64,
    /// The last address.
    pub last: u64,
}

/// What the last [`find`] has found.
#[must_use]
pub fn found() -> Found {
    Found {
        ebbrr: EBBRR.load(Relaxed),
        behind: BEHIND.load(Relaxed),
        last: LAST.load(Relaxed),
    }
}

extern "C" fn trace(context: *mut c_void, _: *mut c_void) -> i32 {
    // SAFETY: the unwinder's own context.
    let address = unsafe { _Unwind_GetIP(context) } as u64;
    if address == 0 {
        return 0;
    }
    if address == INTERRUPTED.load(Relaxed) {
        EBBRR.fetch_add(1, Relaxed);
    } else if EBBRR.load(Relaxed) != 0 {
        BEHIND.fetch_add(1, Relaxed);
    }
    LAST.store(address, Relaxed);
    0
}

/// Follows the frames of whoever calls it, in a handler or a signal's on top of one.
pub fn find() {
    // SAFETY: EBBRR is always readable.
    INTERRUPTED.store(unsafe { spr::read::<{ spr::EBBRR }>() }, Relaxed);
    for number in [&EBBRR, &BEHIND, &LAST] {
        number.store(0, Relaxed);
    }
    // SAFETY: `trace` keeps nothing. It takes a lock, which the interrupted loop does not.
    unsafe { _Unwind_Backtrace(trace, ptr::null_mut()) };
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls during which the C library blocks all signals, SIGILL too: the calling thread has no EBBs
//! meanwhile, see `signals.rs`.
//!
//! A signal's handler may come in the middle of one, as before the mask is set or behind that, and make
//! such a call itself, or leave both by a jump. So each thread counts how many it is in (`thread.rs`).

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use crate::memory::errno;
use crate::memory::set_errno;
use crate::thread;

/// Such a call.
pub(crate) fn without_ebbs<T>(call: impl FnOnce() -> T) -> T {
    begin();
    let result = call();
    end();
    result
}

/// Such a call begins.
pub(crate) fn begin() {
    if let Some(calls) = thread::calls() {
        // First: a handler that comes in between does not have EBBs come again.
        calls.store(calls.load(Relaxed) + 1, Relaxed);
        ebb::disable();
    }
}

/// And ends; errno stays.
pub(crate) fn end() {
    if let Some(calls) = thread::calls() {
        let within = calls.load(Relaxed).saturating_sub(1);
        calls.store(within, Relaxed);
        if within == 0 {
            enable();
        }
    }
}

/// Leaves all that the thread is in, by a jump. An earlier one may have left an EBB's handler, with no EBBs
/// since then: they come again, too.
#[cfg(not(feature = "wrap"))]
pub(crate) fn leave() {
    if let Some(calls) = thread::calls() {
        calls.store(0, Relaxed);
        enable();
    }
}

fn enable() {
    let errno = errno();
    // Fails where the thread is not sampled any more.
    let _ = ebb::enable();
    set_errno(errno);
}

/// How many the calling thread is in.
pub(crate) type Calls = AtomicU32;

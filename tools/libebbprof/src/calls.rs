// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls during which the C library blocks all signals including SIGILL. The calling thread has no
//! EBBs during them, see `signals.rs`.
//!
//! A signal handler may interrupt such a call before the C library sets the mask or after it
//! restores it, make such a call itself, or leave both by longjmp(). So each thread counts the
//! calls that it is in (`thread.rs`).

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use crate::memory::errno;
use crate::memory::set_errno;
use crate::thread;

/// Runs `call`, which blocks SIGILL, without EBBs.
pub(crate) fn without_ebbs<T>(call: impl FnOnce() -> T) -> T {
    begin();
    let result = call();
    end();
    result
}

/// Begins a call that blocks SIGILL: turns EBBs off.
pub(crate) fn begin() {
    if let Some(calls) = thread::calls() {
        // Must be incremented before `disable`: a handler in between would turn EBBs on again at
        // its end.
        calls.store(calls.load(Relaxed) + 1, Relaxed);
        ebb::disable();
    }
}

/// Ends a call that blocks SIGILL: turns EBBs on again. Preserves errno.
pub(crate) fn end() {
    if let Some(calls) = thread::calls() {
        let within = calls.load(Relaxed).saturating_sub(1);
        calls.store(within, Relaxed);
        if within == 0 {
            enable();
        }
    }
}

/// Ends all such calls of the thread before a longjmp(). Also turns EBBs on again if an earlier
/// longjmp() has left an EBB's handler and stopped them.
#[cfg(not(feature = "wrap"))]
pub(crate) fn leave() {
    if let Some(calls) = thread::calls() {
        calls.store(0, Relaxed);
        enable();
    }
}

fn enable() {
    let errno = errno();
    // Fails if the thread is not sampled any more.
    let _ = ebb::enable();
    set_errno(errno);
}

/// Number of such calls that the calling thread is in.
pub(crate) type Calls = AtomicU32;

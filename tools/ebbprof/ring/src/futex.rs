// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for a word that another process changes.

use core::ptr;
use core::sync::atomic::AtomicU32;
use core::time::Duration;

/// Waits until [`wake`] is called for `word`, for at most `most`. Returns at once if `word` is not
/// `seen`.
pub fn wait(word: &AtomicU32, seen: u32, most: Duration) {
    let most = libc::timespec {
        // CAST: The callers wait for a few seconds at most.
        tv_sec: most.as_secs() as libc::time_t,
        // CAST: The number is below 10^9.
        tv_nsec: most.subsec_nanos() as libc::c_long,
    };
    // Not FUTEX_WAIT_PRIVATE, which only works between the threads of one process.
    // SAFETY: Both the word and the time are borrowed until the call has returned.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            ptr::from_ref(word),
            libc::FUTEX_WAIT,
            seen,
            &raw const most,
        );
    }
}

/// Wakes all threads that wait for `word`.
pub fn wake(word: &AtomicU32) {
    // SAFETY: The word is borrowed until the call has returned.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            ptr::from_ref(word),
            libc::FUTEX_WAKE,
            i32::MAX,
        )
    };
}

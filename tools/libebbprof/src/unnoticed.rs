// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the program does not call itself it is not to notice: system calls of this library are no points
//! where a thread is cancelled, and leave errno as it was.

use core::ffi::c_int;

use crate::memory::errno;
use crate::memory::set_errno;

unsafe extern "C" {
    /// Of every C library, but not in the libc crate.
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// Of glibc and musl.
const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// As long as it lives, the calling thread is not cancelled; at its end errno is as at its begin.
pub(crate) struct Unnoticed {
    cancelling: c_int,
    errno: c_int,
}

impl Unnoticed {
    pub(crate) fn begin() -> Self {
        let mut cancelling = 0;
        // SAFETY: the variable lives.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mut cancelling) };
        Self {
            cancelling,
            errno: errno(),
        }
    }
}

impl Drop for Unnoticed {
    fn drop(&mut self) {
        let mut disabled = 0;
        // SAFETY: the variable lives.
        unsafe { pthread_setcancelstate(self.cancelling, &mut disabled) };
        set_errno(self.errno);
    }
}

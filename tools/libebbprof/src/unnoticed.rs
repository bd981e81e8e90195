// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hides the library's own system calls from the program: they are no cancellation points and
//! preserve errno.

use core::ffi::c_int;

use crate::memory::errno;
use crate::memory::set_errno;

unsafe extern "C" {
    /// Exists in every C library, but the libc crate does not declare it.
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// The value in glibc and musl.
const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// A guard: while it lives, the calling thread is not cancelled; when it is dropped, errno is
/// restored.
pub(crate) struct Unnoticed {
    cancelling: c_int,
    errno: c_int,
}

impl Unnoticed {
    pub(crate) fn begin() -> Self {
        let mut cancelling = 0;
        // SAFETY: `cancelling` is a local variable.
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
        // SAFETY: `disabled` is a local variable.
        unsafe { pthread_setcancelstate(self.cancelling, &mut disabled) };
        set_errno(self.errno);
    }
}

// SPDX-License-Identifier: GPL-2.0

//! Error numbers.

use crate::alloc::AllocError;
use std::{convert::Infallible, ffi::c_int, fmt};

/// An errno.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Error(c_int);

/// Result of a function that may fail with an errno.
pub type Result<T = (), E = Error> = core::result::Result<T, E>;

impl Error {
    /// Returns the negative error number.
    pub fn to_errno(self) -> c_int {
        self.0
    }
}

/// The errors that the driver uses.
pub mod code {
    #![allow(missing_docs)]
    use super::Error;

    macro_rules! errors {
        ($($name:ident = $number:expr),* $(,)?) => { $( pub const $name: Error = Error(-$number); )* };
    }

    errors! {
        ENOENT = 2, EAGAIN = 11, ENOMEM = 12, EFAULT = 14, EBUSY = 16, EEXIST = 17, ENODEV = 19,
        EINVAL = 22, ENOSPC = 28, EOPNOTSUPP = 95,
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "errno {}", -self.0)
    }
}

impl From<AllocError> for Error {
    fn from(_: AllocError) -> Self {
        code::ENOMEM
    }
}

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// Message for a method without an implementation.
pub const VTABLE_DEFAULT_ERROR: &str = "a method without an implementation";

/// Converts a C function's result.
pub fn to_result(errno: c_int) -> Result {
    if errno < 0 { Err(Error(errno)) } else { Ok(()) }
}

/// Converts a result to the form that C functions return.
pub fn from_result(f: impl FnOnce() -> Result<c_int>) -> c_int {
    f().unwrap_or_else(Error::to_errno)
}

/// Converts a pointer that may be an error (`ERR_PTR()`).
pub fn from_err_ptr<T>(pointer: *mut T) -> Result<*mut T> {
    let number = pointer as isize;
    if (-4095..0).contains(&number) {
        Err(Error(number as c_int))
    } else {
        Ok(pointer)
    }
}

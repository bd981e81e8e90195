// SPDX-License-Identifier: GPL-2.0

//! Strings for C.

pub use core::ffi::CStr;

use crate::{alloc::AllocError, error::Result};
use std::{
    ffi::{self, c_char},
    fmt,
    ops::Deref,
};

/// Methods that the kernel crate adds to [`CStr`].
pub trait CStrExt {
    /// Returns the pointer for C.
    fn as_char_ptr(&self) -> *const c_char;

    /// Returns the string at a pointer.
    ///
    /// # Safety
    ///
    /// The requirements of `CStr::from_ptr` apply.
    unsafe fn from_char_ptr<'a>(pointer: *const c_char) -> &'a CStr;
}

impl CStrExt for CStr {
    fn as_char_ptr(&self) -> *const c_char {
        self.as_ptr()
    }

    unsafe fn from_char_ptr<'a>(pointer: *const c_char) -> &'a CStr {
        // SAFETY: The caller guarantees the requirements of `CStr::from_ptr`.
        unsafe { CStr::from_ptr(pointer) }
    }
}

/// An owned string.
pub struct CString(ffi::CString);

impl CString {
    /// Formats a string.
    pub fn try_from_fmt(text: fmt::Arguments<'_>) -> Result<Self, AllocError> {
        Ok(Self(
            ffi::CString::new(text.to_string()).expect("no null in it"),
        ))
    }
}

impl Deref for CString {
    type Target = CStr;

    fn deref(&self) -> &CStr {
        &self.0
    }
}

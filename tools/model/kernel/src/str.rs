// SPDX-License-Identifier: GPL-2.0

//! Strings for C.

pub use core::ffi::CStr;

use crate::{alloc::AllocError, error::Result};
use std::{
    ffi::{self, c_char},
    fmt,
    ops::Deref,
};

/// What the kernel crate adds to [`CStr`].
pub trait CStrExt {
    /// The pointer that C takes.
    fn as_char_ptr(&self) -> *const c_char;

    /// The string at a pointer.
    ///
    /// # Safety
    ///
    /// As `CStr::from_ptr`.
    unsafe fn from_char_ptr<'a>(pointer: *const c_char) -> &'a CStr;
}

impl CStrExt for CStr {
    fn as_char_ptr(&self) -> *const c_char {
        self.as_ptr()
    }

    unsafe fn from_char_ptr<'a>(pointer: *const c_char) -> &'a CStr {
        // SAFETY: The caller guarantees it.
        unsafe { CStr::from_ptr(pointer) }
    }
}

/// An owned string.
pub struct CString(ffi::CString);

impl CString {
    /// Formats one.
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

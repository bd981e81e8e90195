// SPDX-License-Identifier: GPL-2.0

//! Values that C code holds.

use std::{cell::UnsafeCell, ffi::c_void};

/// A value that C code may access.
#[repr(transparent)]
pub struct Opaque<T>(UnsafeCell<T>);

impl<T> Opaque<T> {
    /// Creates an `Opaque` that holds `value`.
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Returns a pointer to the value.
    pub const fn get(&self) -> *mut T {
        self.0.get()
    }

    /// Converts a pointer to the value to one to the `Opaque`.
    pub const fn cast_from(this: *const T) -> *const Self {
        this.cast()
    }
}

/// A value that C code can own through a pointer.
pub trait ForeignOwnable {
    /// The type of a borrowed value.
    type Borrowed<'a>;

    /// Passes the value to C code.
    fn into_foreign(self) -> *mut c_void;

    /// Takes the value back from C code.
    ///
    /// # Safety
    ///
    /// The pointer must be from [`ForeignOwnable::into_foreign`], and must not be used afterwards.
    unsafe fn from_foreign(pointer: *mut c_void) -> Self;

    /// Borrows the value.
    ///
    /// # Safety
    ///
    /// The pointer must be from [`ForeignOwnable::into_foreign`], and stay valid for `'a`.
    unsafe fn borrow<'a>(pointer: *mut c_void) -> Self::Borrowed<'a>;
}

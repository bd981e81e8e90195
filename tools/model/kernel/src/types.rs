// SPDX-License-Identifier: GPL-2.0

//! Values that C has in its hands.

use std::{cell::UnsafeCell, ffi::c_void};

/// What C owns with us.
#[repr(transparent)]
pub struct Opaque<T>(UnsafeCell<T>);

impl<T> Opaque<T> {
    /// One that holds `value`.
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// The pointer to it.
    pub const fn get(&self) -> *mut T {
        self.0.get()
    }

    /// Of a pointer to what it holds, the one to it.
    pub const fn cast_from(this: *const T) -> *const Self {
        this.cast()
    }
}

/// What C can own as a pointer.
pub trait ForeignOwnable {
    /// What is borrowed of C.
    type Borrowed<'a>;

    /// Gives it to C.
    fn into_foreign(self) -> *mut c_void;

    /// Takes it back.
    ///
    /// # Safety
    ///
    /// The pointer must be from [`ForeignOwnable::into_foreign`], and is not valid any more.
    unsafe fn from_foreign(pointer: *mut c_void) -> Self;

    /// Borrows it.
    ///
    /// # Safety
    ///
    /// The pointer must be from [`ForeignOwnable::into_foreign`], and stay valid for `'a`.
    unsafe fn borrow<'a>(pointer: *mut c_void) -> Self::Borrowed<'a>;
}

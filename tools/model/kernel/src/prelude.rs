// SPDX-License-Identifier: GPL-2.0

//! What the driver imports in any case.

pub use crate::{
    alloc::{Flags, GFP_KERNEL, KBox, KVVec, KVec},
    error::{Error, Result, code::*},
    fmt,
    init::PinInit,
    str::{CStr, CStrExt as _},
};
pub use crate::{pr_err, pr_info, pr_warn, try_pin_init};
pub use core::pin::Pin;
pub use kernel_macros::{IntoBytes, pin_data, pinned_drop, vtable};
pub use std::ffi::{c_char, c_int, c_uint, c_void};

/// `unsigned long`, in the kernel crate a `usize`.
#[allow(non_camel_case_types)]
pub type c_ulong = usize;

/// The module.
pub struct ThisModule;

impl ThisModule {
    /// The C structure.
    pub fn as_ptr(&self) -> *mut c_void {
        std::ptr::null_mut()
    }
}

/// A type whose values are nothing but bytes.
///
/// # Safety
///
/// They must have no padding.
pub unsafe trait IntoBytes {}

macro_rules! bytes {
    ($($type:ty),*) => { $(
        // SAFETY: An integer, or a boolean.
        unsafe impl IntoBytes for $type {}
    )* };
}

bytes!(bool, u8, u16, u32, u64, usize, i64);

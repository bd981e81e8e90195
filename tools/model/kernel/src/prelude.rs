// SPDX-License-Identifier: GPL-2.0

//! The prelude, which each file of the driver imports.

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

/// `unsigned long`, which is a `usize` in the kernel crate.
#[allow(non_camel_case_types)]
pub type c_ulong = usize;

/// The module.
pub struct ThisModule;

impl ThisModule {
    /// Returns the C structure, which does not exist on the host.
    pub fn as_ptr(&self) -> *mut c_void {
        std::ptr::null_mut()
    }
}

/// A type whose values consist of initialized bytes.
///
/// # Safety
///
/// Values of the type must have no padding.
pub unsafe trait IntoBytes {}

macro_rules! bytes {
    ($($type:ty),*) => { $(
        // SAFETY: An integer or a boolean has no padding.
        unsafe impl IntoBytes for $type {}
    )* };
}

bytes!(bool, u8, u16, u32, u64, usize, i64);

// SPDX-License-Identifier: GPL-2.0

//! perf core's types and functions, which bindgen reads from the kernel's headers.
//!
//! Types that do not belong to perf are the kernel crate's own (see `Kbuild`).

#![allow(
    clippy::all,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn
)]

use kernel::ffi;
use pin_init::Zeroable;

include!("bindings_generated.rs");

// SAFETY: bindgen's type for bit fields is a structure with only a `Storage`.
unsafe impl<Storage: Zeroable> Zeroable for __BindgenBitfieldUnit<Storage> {}

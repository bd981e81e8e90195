// SPDX-License-Identifier: GPL-2.0

//! The functions of `shim.c`, declared by bindgen from `include/shim.h`.

#![allow(
    clippy::all,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks,
    missing_docs,
    unreachable_pub
)]

use kernel::ffi;

include!("bindings_generated.rs");

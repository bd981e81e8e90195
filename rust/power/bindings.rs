// SPDX-License-Identifier: GPL-2.0

//! What bindgen makes of `bindings_helper.h`.

#![allow(
    clippy::all,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks,
    missing_docs,
    unreachable_pub
)]

use kernel::ffi;

include!("bindings_generated.rs");

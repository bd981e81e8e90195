// SPDX-License-Identifier: GPL-2.0

//! The bindings that bindgen makes from `bindings_helper.h`.

#![allow(
    clippy::all,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks,
    missing_docs,
    non_camel_case_types,
    unreachable_pub
)]

use kernel::ffi;

include!("bindings_generated.rs");

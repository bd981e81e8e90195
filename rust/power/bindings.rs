// SPDX-License-Identifier: GPL-2.0

//! What bindgen makes of `bindings_helper.h`.

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

#[cfg(EBB_ONLY)]
pub(crate) use without_patches::*;

/// Functions that only a patched kernel has. The `ebb` mode does without: no event has samples, and
/// none wants prompt PMIs.
#[cfg(EBB_ONLY)]
mod without_patches {
    use super::ffi::{
        c_int,
        c_ulong, //
    };

    pub(crate) unsafe fn set_pmcs_ext_regs(_index: c_int, _value: c_ulong) {}

    pub(crate) unsafe fn set_prompt_pmi_wanted(_wanted: bool) {}
}

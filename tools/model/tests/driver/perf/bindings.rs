// SPDX-License-Identifier: GPL-2.0

//! `bindings.rs` of `rust/perf`: what `perf_core.rs` works with too.

pub(crate) use crate::perf_bindings::*;

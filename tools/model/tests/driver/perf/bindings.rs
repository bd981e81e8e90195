// SPDX-License-Identifier: GPL-2.0

//! `bindings.rs` of `rust/perf`, with the items that `perf_core.rs` uses, too.

pub(crate) use crate::perf_bindings::*;

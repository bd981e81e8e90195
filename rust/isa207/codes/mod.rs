// SPDX-License-Identifier: GPL-2.0

//! What the words of `perf_event_attr` mean: the fields of an event code, where each CPU has
//! them, and perf's own numbers for common events.

pub(super) mod event_code;
pub(super) mod field;
pub(super) mod layout;
pub(super) mod perf_event;

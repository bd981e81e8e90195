// SPDX-License-Identifier: GPL-2.0

//! The contents of `perf_event_attr`'s words: the fields of an event code, their positions on each
//! CPU, and perf's own numbers for common events.

pub(super) mod event_code;
pub(super) mod field;
pub(super) mod layout;
pub(super) mod perf_event;

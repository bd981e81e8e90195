// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attributes of EBB events for perf_event_open(2).
//!
//! Closing a thread's last EBB event removes its access to the PMU registers. Call
//! [`disable`](crate::disable) before that.

use perf_event::Attr;

use crate::config::EBB;
use crate::rules;

/// Returns the attributes of an EBB event that leads a group: pinned, exclusive, disabled, and
/// counting in problem state only.
///
/// If the kernel refuses it with EINVAL, the error names the rule for EBB events that the request
/// breaks, if the request alone shows it.
pub fn event(code: u64) -> Attr {
    member(code).pinned(true).exclusive(true)
}

/// Returns the attributes of an EBB event that joins a group: neither pinned nor exclusive itself.
pub fn member(code: u64) -> Attr {
    Attr::raw(code | EBB)
        .user_only()
        .explained_by(rules::broken)
}

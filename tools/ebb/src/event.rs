// SPDX-License-Identifier: MIT OR Apache-2.0
//! EBB events: what to ask perf_event_open(2) for.
//!
//! Closing a thread's last EBB event takes its access to the PMU registers away. Call
//! [`disable`](crate::disable) before.

use perf_event::Attr;

use crate::config::EBB;
use crate::rules;

/// An EBB event that leads a group: pinned, exclusive, disabled, and counting in
/// problem state only.
///
/// A refusal with EINVAL names the rule for EBB events that the request breaks, if it
/// is one that can be told by the request alone.
pub fn event(code: u64) -> Attr {
    member(code).pinned(true).exclusive(true)
}

/// An EBB event for a member of a group, which is neither pinned nor exclusive itself.
pub fn member(code: u64) -> Attr {
    Attr::raw(code | EBB)
        .user_only()
        .explained_by(rules::broken)
}

// SPDX-License-Identifier: GPL-2.0

//! Messages for dynamic debug, which the kernel crate's `pr_debug!` does not take part in.

use super::bindings;
use kernel::prelude::*;

/// Logs that the event with `config` is refused with `error`, and why.
pub(crate) fn refusal(config: u64, error: Error, reason: &str) {
    // SAFETY: The string is valid during the call, for its length.
    unsafe {
        bindings::ebb_pmu_log_refusal(config, error.to_errno(), reason.as_ptr(), reason.len());
    };
}

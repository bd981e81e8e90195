// SPDX-License-Identifier: GPL-2.0

//! Messages for dynamic debug, which the kernel crate's `pr_debug!` does not support.

use super::bindings;
use kernel::prelude::*;

/// Logs that the event with `config` was refused with `error`, and the reason.
pub(crate) fn refusal(config: u64, error: Error, reason: &str) {
    // SAFETY: The string is valid during the call, and its length is passed.
    unsafe {
        bindings::ebb_pmu_log_refusal(config, error.to_errno(), reason.as_ptr(), reason.len());
    };
}

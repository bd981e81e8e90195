// SPDX-License-Identifier: GPL-2.0

//! Sampling periods: the remaining part of a period, and the counter value from which it ends with
//! an alert.

use crate::{
    perf::HwMut,
    power::pmu, //
};

/// Returns the value from which a counter becomes negative after `left` more events.
pub(super) fn preload(left: i64) -> u32 {
    // A period of more than 2^31 takes several alerts. The counter must not start negative, because
    // it would raise no alert, so `left` is at least 1.
    let left = left.clamp(1, i64::from(pmu::NEGATIVE));
    // CAST: `clamp` limits `left` to 2^31.
    pmu::NEGATIVE - left as u32
}

/// The value of `period_left` when the period is over and its sample is not reported yet. 0 is not
/// possible, because perf core stores 0 when the event's period was changed, and that starts a new
/// period.
pub(super) const SAMPLE_DUE: i64 = i64::MIN;

/// Returns the remaining period if it was `left` before `delta` events. The result is negative if
/// the period ended before the last of these events.
pub(super) fn left_after(left: i64, delta: u64) -> i64 {
    // CAST: A counter counts at most 2^32 events between two updates.
    (if left == SAMPLE_DUE { 0 } else { left }) - delta as i64
}

/// Restarts the counter of an event with `value`. The PMU must be frozen.
pub(super) fn restart(hw: &HwMut<'_>, index: usize, value: u32) {
    hw.set_prev_count(value.into());
    pmu::write_pmc(index, value);
    hw.update_userpage();
}

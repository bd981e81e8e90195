// SPDX-License-Identifier: GPL-2.0

//! Sampling periods: what remains of one, and the counter's value that makes it end with an alert.

use crate::{
    perf::HwMut,
    power::pmu, //
};

/// The value from which a counter becomes negative after `left` more events.
pub(super) fn preload(left: i64) -> u32 {
    // A period of more than 2^31 takes several alerts. A counter that started negative would raise
    // none, so at least one event is left.
    let left = left.clamp(1, i64::from(pmu::NEGATIVE));
    // CAST: At most 2^31 by the line above.
    pmu::NEGATIVE - left as u32
}

/// The value of `period_left` when the period is over and its sample is still to come. 0 would
/// start a new period: perf core stores it to say that the event's period was changed.
pub(super) const SAMPLE_DUE: i64 = i64::MIN;

/// Returns what remains of a period `delta` events after `period_left` was `left`; negative if the
/// period was over before the last of them.
pub(super) fn left_after(left: i64, delta: u64) -> i64 {
    // CAST: At most 2^32.
    (if left == SAMPLE_DUE { 0 } else { left }) - delta as i64
}

/// Restarts the counter of an event with this value. The PMU must be frozen.
pub(super) fn restart(hw: &HwMut<'_>, index: usize, value: u32) {
    hw.set_prev_count(value.into());
    pmu::write_pmc(index, value);
    hw.update_userpage();
}

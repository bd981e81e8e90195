// SPDX-License-Identifier: GPL-2.0

//! The CPU time that PMIs take.
//!
//! All times are in ticks of the time base.

use crate::{
    perf::PmiCell,
    power::machine, //
};

const SECOND: u64 = machine::TICKS_PER_SECOND;

/// The time that the kernel takes to enter and leave a PMI, which the handler cannot measure: about
/// a microsecond.
pub(super) const ENTRY: u64 = SECOND / 1_000_000;
/// The excess above which events are throttled. It is reached in a third of this time if PMIs take
/// all of the time.
const LIMIT: u64 = SECOND / 10;
/// The upper bound of the excess, which is 0 this time after the last PMI.
const MAX_EXCESS: u64 = SECOND / 5;

/// The excess of PMI time over a quarter of all time, measured like a leaky bucket.
/// `Documentation/internals.md`, "Throttling", explains the constants.
#[derive(Default)]
pub(super) struct PmiTime {
    /// The end of the last PMI.
    end: PmiCell<u64>,
    /// The excess at that time.
    excess: PmiCell<u64>,
}

impl PmiTime {
    /// Returns the excess at the time `now`, after the last PMI.
    pub(super) fn excess(&self, now: u64) -> u64 {
        let since_end = now.wrapping_sub(self.end.get());
        self.excess.get().saturating_sub(since_end)
    }

    /// Accounts for a PMI that began at `began`, with this `excess`. Returns its duration.
    pub(super) fn account(&self, began: u64, excess: u64) -> u64 {
        let end = machine::time_base();
        let took = end.wrapping_sub(began);
        // Each PMI must be followed by three times as much time without PMIs.
        let excess = excess.wrapping_add(took.wrapping_add(ENTRY).wrapping_mul(3));
        self.excess.set(excess.min(MAX_EXCESS));
        self.end.set(end);
        took
    }
}

/// Returns whether PMIs with this excess take too much time.
pub(super) fn is_excessive(excess: u64) -> bool {
    excess > LIMIT
}

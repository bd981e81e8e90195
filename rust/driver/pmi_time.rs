// SPDX-License-Identifier: GPL-2.0

//! The time that PMIs take of a CPU.
//!
//! All times are in ticks of the time base.

use crate::{
    perf::PmiCell,
    power::machine, //
};

const SECOND: u64 = machine::TICKS_PER_SECOND;

/// Time that the kernel takes to enter and leave a PMI, which the handler cannot see: about a
/// microsecond.
pub(super) const ENTRY: u64 = SECOND / 1_000_000;
/// The excess from which events are throttled.
const LIMIT: u64 = SECOND / 10;
/// The highest excess that is kept, which bounds how long events stay throttled after PMIs end.
const MOST: u64 = SECOND / 5;

/// By how much PMIs exceed a quarter of the time, like a leaky bucket.
/// `Documentation/internals.md`, "Throttling", says where the constants come from.
#[derive(Default)]
pub(super) struct PmiTime {
    /// When the last PMI was handled.
    end: PmiCell<u64>,
    /// The excess at that time.
    excess: PmiCell<u64>,
}

impl PmiTime {
    /// Returns the excess at the time `now`, after the last PMI.
    pub(super) fn excess(&self, now: u64) -> u64 {
        let rest = now.wrapping_sub(self.end.get());
        self.excess.get().saturating_sub(rest)
    }

    /// Accounts a PMI that began at `start`, with this `excess`. Returns how long it took.
    pub(super) fn account(&self, start: u64, excess: u64) -> u64 {
        let end = machine::time_base();
        let took = end.wrapping_sub(start);
        // Each PMI has to be followed by three times as long without any.
        let excess = excess.wrapping_add(took.wrapping_add(ENTRY).wrapping_mul(3));
        self.excess.set(excess.min(MOST));
        self.end.set(end);
        took
    }
}

/// Whether PMIs with this excess take too much time.
pub(super) fn is_excessive(excess: u64) -> bool {
    excess > LIMIT
}

// SPDX-License-Identifier: GPL-2.0

//! Sampling events whose PM interrupts leave a CPU no time for anything else, and how they are held
//! back.
//!
//! With a period of a few events, or on a kernel that is slow, the next period is over before the
//! program has got anything done. perf core stops an event that had too many samples since the last
//! tick. That comes too late if a few samples take a tick, or if the event starts anew at each task
//! switch: the CPU then does nothing but handle PMIs.
//!
//! What tells such a storm from samples that somebody wants is what they are of. Branch stacks
//! every 5,000 cycles may take half of the time as well, but the program does 5,000 cycles of work
//! for each. In a storm the handler takes many times as long as the events of a period.

use super::cpu_state::ThisCpu;
use crate::{
    perf::{
        Event,
        PmiCell, //
    },
    power::machine, //
};

/// The nanoseconds by which storms may take more time than there is between them.
const PATIENCE: u64 = 100_000_000;

/// The nanoseconds after which no PMI comes any more that held events back.
const LONGEST: u64 = 1_000_000;

/// The events from one alert to the next of an event that is held back. If they become rare just
/// then, its next sample is late.
const DISTANCE: i64 = 1 << 16;

/// The storms on one CPU.
#[derive(Default)]
pub(super) struct Storm {
    /// How many nanoseconds the handler took last.
    took: PmiCell<u64>,
    /// When a period that is short for that was last over.
    last: PmiCell<u64>,
    /// By how many nanoseconds storms took more time than there was between them.
    excess: PmiCell<u64>,
}

impl Storm {
    /// Notes how many nanoseconds the handler of a PMI took.
    #[inline(always)]
    pub(super) fn set_took(&self, took: u64) {
        self.took.set(took);
    }

    /// Whether the handler takes 2 ns and more for each event of a `period`.
    #[inline(always)]
    pub(super) fn is_short(&self, period: u64) -> bool {
        period < self.took.get() / 2
    }

    /// Notes that `delta` events with such a period were over at `now`. Returns whether its
    /// interrupts are to be rarer.
    fn note(&self, now: u64, period: u64, delta: u64) -> bool {
        let span = now.saturating_sub(self.last.get());
        self.last.set(now);
        // A hypervisor may have had the CPU meanwhile.
        let took = self.took.get().min(LONGEST);
        // The handler takes a quarter of the time and more, or did if it came for each period. What
        // comes before and after it takes about as much again.
        let is_storm = span.saturating_mul(period) <= (4 * took).saturating_mul(delta);
        let excess = self.excess.get();
        self.excess.set(if is_storm {
            excess.saturating_add(span).min(PATIENCE + LONGEST)
        } else {
            excess.saturating_sub(span)
        });
        is_storm && self.is_too_much()
    }

    /// Whether storms have taken more than half of the time for long.
    #[inline(always)]
    fn is_too_much(&self) -> bool {
        self.excess.get() > PATIENCE
    }
}

/// Notes that the counter of `event` has overflowed after `delta` events, many times its `period`
/// if it is held back.
#[cold]
pub(super) fn note(this_cpu: &ThisCpu, event: &Event, period: u64, delta: u64) {
    let holds = this_cpu.storm.note(machine::sched_clock(), period, delta);
    event.hw_mut(this_cpu.irqs_off()).set_mark(holds.into());
}

/// The least events after which the counter of `event` may overflow, of whose period `left` is
/// left: negative if it was over that many events ago, before the event left a CPU.
#[inline(always)]
pub(super) fn least_distance(this_cpu: &ThisCpu, event: &Event, left: i64) -> i64 {
    if this_cpu.storm.is_too_much() && event.hw().mark() != 0 {
        DISTANCE.saturating_add(left.min(0))
    } else {
        1
    }
}

/// KUnit tests (see `Documentation/testing.md`).
#[cfg(EBB_KUNIT)]
#[kernel::macros::kunit_tests(ebb_pmu_storm)]
mod tests {
    use super::*;

    /// Whether a period is held back after `count` PMIs of 1 us, one each `span` nanoseconds.
    fn is_held(storm: &Storm, count: u64, span: u64, period: u64, delta: u64) -> bool {
        let mut holds = false;
        for _ in 0..count {
            storm.set_took(1000);
            let now = storm.last.get() + span;
            holds = storm.is_short(period) && storm.note(now, period, delta);
        }
        holds
    }

    #[test]
    fn one_period_after_another_is_held_back_after_a_while() {
        let storm = Storm::default();
        assert!(!is_held(&storm, 40_000, 2000, 1, 1));
        assert!(is_held(&storm, 20_000, 2000, 1, 1));
        // And stays so when it is rare for that.
        assert!(is_held(&storm, 10_000, 70_000, 1, 1 << 16));
        // A quiet time is enough to forget.
        assert!(!is_held(&storm, 1, PATIENCE, 1, 1));
        assert!(!is_held(&storm, 10_000, 2000, 1, 1));
    }

    #[test]
    fn periods_that_are_long_or_rare_are_not() {
        assert!(!is_held(&Storm::default(), 100_000, 2000, 500, 500));
        assert!(!is_held(&Storm::default(), 100_000, 5000, 1, 1));
    }

    #[test]
    fn what_throttling_stops_in_time_is_not() {
        let storm = Storm::default();
        for _ in 0..1000 {
            assert!(!is_held(&storm, 400, 2000, 1, 1));
            assert!(!is_held(&storm, 1, 3_200_000, 1, 1));
        }
    }

    #[test]
    fn a_clock_that_steps_back_counts_nothing() {
        let storm = Storm::default();
        assert!(!is_held(&storm, 10, 2000, 1, 1));
        let excess = storm.excess.get();
        storm.note(storm.last.get() - 500, 1, 1);
        assert_eq!(storm.excess.get(), excess);
    }
}

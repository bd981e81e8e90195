// SPDX-License-Identifier: GPL-2.0

//! How much of a CPU's time PMIs take, and counters that are held back when it is too much.
//!
//! A period of a few events, or a kernel whose samples take long, lets the next PMI come as soon as
//! the last one has returned. perf core stops an event that had too many samples since the last
//! tick. That does not help if the samples of a few of them take a tick, or if the event starts
//! anew at each task switch: the CPU then does nothing but handle PMIs.
//!
//! So their handler may take a fifth of a CPU's time; what comes before and after it takes about as
//! much again. A CPU on which it has taken more for a tenth of a second holds the counters back
//! that overflow again and again: each of their alerts comes after twice the events of the one
//! before, until the handler takes less. A sample's period says how many events it stands for, so
//! none is lost to who adds them up.

use super::cpu_state::ThisCpu;
use crate::{
    perf::{
        Event,
        PmiCell, //
    },
    power::machine, //
};

/// The nanoseconds of a tick at 250 Hz.
const TICK: u64 = 4_000_000;

/// The nanoseconds by which the handler may exceed its share: perf core has had many ticks to stop
/// an event with too many samples by then, and to lower the highest sample rate.
const PATIENCE: u64 = 25 * TICK;

/// The most nanoseconds that one PMI is taken to last. A hypervisor may have had the CPU meanwhile.
const LONGEST: u64 = TICK / 4;

/// How many PMIs of other counters may come between two of one that is held back.
const OTHERS: u32 = 8;

/// The most events from one alert to the next of a counter that is held back: some milliseconds, if
/// it counts cycles. One that becomes rare meanwhile has its next sample late.
const FURTHEST: u64 = 1 << 24;

/// The time that PMIs take on one CPU.
#[derive(Default)]
pub(super) struct PmiLoad {
    /// The PMIs so far, modulo 2^32.
    number: PmiCell<u32>,
    /// When the last one ended.
    end: PmiCell<u64>,
    /// By how many nanoseconds the handler has exceeded a fifth of the time.
    excess: PmiCell<u64>,
    /// The last PMI added to the excess.
    grows: PmiCell<bool>,
    /// Counters are held back: from when the excess was too much until some of it is gone.
    holds: PmiCell<bool>,
}

impl PmiLoad {
    /// Adds a PMI that lasted from `start` to `end`, as [`machine::sched_clock`] has it.
    pub(super) fn add(&self, start: u64, end: u64) {
        let between = start.saturating_sub(self.end.get());
        let lasted = end.saturating_sub(start).min(LONGEST);
        let before = self.excess.get();
        // No more than some ticks can take off again.
        let excess = (before.saturating_sub(between / 4) + lasted).min(PATIENCE + TICK);
        self.number.set(self.number.get().wrapping_add(1));
        self.end.set(end);
        self.excess.set(excess);
        self.grows.set(excess >= before);
        if excess > PATIENCE {
            self.holds.set(true);
        } else if excess < PATIENCE - TICK {
            self.holds.set(false);
        }
    }

    /// How far from its alert `event` was last held back; `None` if that was long ago.
    fn distance(&self, event: &Event) -> Option<u32> {
        let mark = event.hw().mark();
        // CAST: The halves of what `hold_back` puts together.
        let (number, distance) = ((mark >> 32) as u32, mark as u32);
        (self.number.get().wrapping_sub(number) <= OTHERS).then_some(distance)
    }

    /// Whether PMIs take too much time.
    #[inline(always)]
    pub(super) fn is_too_high(&self) -> bool {
        self.holds.get()
    }
}

/// The least events after which the counter of `event` may overflow, on a CPU on which PMIs take
/// too much time.
#[cold]
pub(super) fn least_distance(this_cpu: &ThisCpu, event: &Event) -> i64 {
    let load = &this_cpu.pmi_load;
    // No PMI has come for long: whatever held counters back is over.
    let since_last = machine::sched_clock().saturating_sub(load.end.get());
    match load.distance(event) {
        Some(distance) if since_last < PATIENCE => distance.into(),
        _ => 1,
    }
}

/// Notes that the counter of `event` has overflowed after `delta` events on such a CPU.
#[cold]
pub(super) fn hold_back(this_cpu: &ThisCpu, event: &Event, delta: u64) {
    let load = &this_cpu.pmi_load;
    let distance = match load.distance(event) {
        Some(distance) if load.grows.get() => 2 * delta.max(distance.into()),
        Some(distance) => delta.max(distance.into()),
        // Other events' PMIs are not this one's fault, if it is not soon there again.
        None => 1,
    };
    // CAST: The furthest has 25 bits.
    let distance = distance.min(FURTHEST) as u32;
    event
        .hw_mut(this_cpu.irqs_off())
        .set_mark(u64::from(load.number.get()) << 32 | u64::from(distance));
}

/// KUnit tests (see `Documentation/testing.md`).
#[cfg(EBB_KUNIT)]
#[kernel::macros::kunit_tests(ebb_pmu_pmi_load)]
mod tests {
    use super::*;

    /// What `count` PMIs leave, each of `lasted` nanoseconds, `between` after the last.
    fn after(count: u64, lasted: u64, between: u64) -> PmiLoad {
        let load = PmiLoad::default();
        let mut now = 1 << 40;
        load.end.set(now);
        for _ in 0..count {
            let start = now + between;
            now = start + lasted;
            load.add(start, now);
        }
        load
    }

    #[test]
    fn pmis_may_take_a_fifth_of_the_time() {
        assert!(!after(1_000_000, 3000, 12_000).is_too_high());
        assert!(!after(10_000, 3000, 1000).is_too_high());
        assert!(!after(190_000, 3000, 10_000).is_too_high());
        assert!(after(210_000, 3000, 10_000).is_too_high());
    }

    #[test]
    fn one_long_pmi_is_not_too_much() {
        assert!(!after(1, u64::MAX / 4, 0).is_too_high());
        assert!(!after(99, 1_000_000_000, 0).is_too_high());
        assert!(after(102, 1_000_000_000, 0).is_too_high());
    }

    #[test]
    fn a_quiet_time_is_enough_to_forget() {
        let load = after(10_000, 100_000, 0);
        assert!(load.is_too_high());
        let now = load.end.get() + 8 * PATIENCE;
        load.add(now, now + 1000);
        assert!(!load.is_too_high());
    }

    #[test]
    fn a_clock_that_steps_back_counts_nothing() {
        let load = after(1, 1000, 1000);
        load.add(load.end.get() - 500, load.end.get() - 700);
        assert!(!load.is_too_high());
    }
}

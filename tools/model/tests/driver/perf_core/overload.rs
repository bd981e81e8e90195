// SPDX-License-Identifier: GPL-2.0

//! PM interrupts that overload the kernel: the events that the driver throttles then, and how much.

use super::{Event, PerfCore};
use crate::{
    machine::{TIME_BASE_HZ, ensure, with_machine},
    perf_bindings::perf_event_attr,
};
use std::cell::Cell;

/// The time of a CPU that PM interrupts took, in ticks of the time base.
#[derive(Default)]
pub struct PmiTime {
    /// The end of the last one.
    end: Cell<u64>,
    /// The time by which PM interrupts had exceeded a quarter of all time at that end.
    excess: Cell<u64>,
    /// The duration of the present one so far, without entry and exit.
    took: Cell<u64>,
    /// There was no excess when the step began.
    was_quiet: Cell<bool>,
}

impl PmiTime {
    /// Duration of an interrupt's entry and exit: a microsecond.
    const ENTRY: u64 = TIME_BASE_HZ / 1_000_000;

    /// Returns the excess at the start of the present interrupt.
    pub fn excess(&self) -> u64 {
        let begin = with_machine(|machine| machine.time_base) - self.took.get();
        let since_end = begin - self.end.get();
        self.excess.get().saturating_sub(since_end)
    }

    /// Returns whether the periods of events that overflow all the time are stretched, because the
    /// excess is more than a tenth of a second.
    pub fn is_overloaded(&self) -> bool {
        self.excess() > TIME_BASE_HZ / 10
    }

    /// Records that a sample was written. Returns the present time, and the duration of the
    /// interrupt.
    pub fn pass(&self) -> (u64, u64) {
        with_machine(|machine| {
            let ticks = machine.kind.ticks_of_sample();
            machine.time_base += ticks;
            self.took.set(self.took.get() + ticks);
            (machine.time_base, self.took.get() + Self::ENTRY)
        })
    }

    /// Ends the interrupt. Returns its duration.
    pub fn end(&self) -> u64 {
        let excess = self.excess() + 3 * (self.took.get() + Self::ENTRY);
        self.excess.set(excess.min(TIME_BASE_HZ / 5));
        self.end.set(with_machine(|machine| machine.time_base));
        self.took.take()
    }
}

impl PerfCore {
    /// Begins a step.
    pub fn begin_step(&self) {
        for cpu in &self.cpus {
            let is_quiet = cpu.pmi_time.excess() == 0;
            cpu.pmi_time.was_quiet.set(is_quiet);
        }
    }

    /// Returns whether there was no excess when the step began, on this CPU or on any.
    pub fn was_quiet(&self, cpu: Option<usize>) -> bool {
        let mut cpus = self.cpus.iter().enumerate();
        cpus.any(|(here, state)| {
            cpu.is_none_or(|cpu| cpu == here) && state.pmi_time.was_quiet.get()
        })
    }
}

impl Event {
    /// Throttles the event after a sample for `ended` occurrences, at the time `now`, in an interrupt
    /// that took `took` ticks. The period that has begun is then 8 times as long as the ended one, up
    /// to a million, or 8 times the period of an event with a frequency. The event is not throttled
    /// if its PM interrupts take less than a 16th of the time.
    pub fn throttle(&self, ended: u64, now: u64, took: u64) {
        let since = now - self.overflow_time.replace(now);
        let is_frequency = self.flag(perf_event_attr::freq_raw);
        let from = if is_frequency {
            self.sample_period()
        } else {
            ended
        };
        let (length, left) = self.period.get();
        let longer = (8 * from).min(1 << 20);
        if since <= 16 * took && longer > length {
            self.period.set((longer, left + (longer - length) as i64));
            self.is_throttled.set(!is_frequency);
        }
    }

    /// Checks whether the driver has restored the event's period as its counter started. Then the
    /// event has a remainder of its normal period. There must be no excess at that time.
    pub fn check_throttling(&self) {
        if !self.is_throttled.get() {
            return;
        }
        let found = self.last_period();
        let (length, left) = self.period.get();
        if found == length {
            return;
        }
        let (id, own) = (self.id, self.sample_period());
        let right = left + found as i64 - length as i64 == own as i64;
        ensure(right && PerfCore::get().was_quiet(self.oncpu.get()), || {
            format!("event {id} has {left} of {length} remaining and is unthrottled with {found}")
        });
        self.period.set((found, own as i64));
        self.is_throttled.set(found != own);
    }
}

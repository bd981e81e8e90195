// SPDX-License-Identifier: GPL-2.0

//! PM interrupts that outrun the kernel: which events the driver holds back then, and by how much.

use super::{Event, PerfCore};
use crate::{
    machine::{TIME_BASE_HZ, ensure, with_machine},
    perf_bindings::perf_event_attr,
};
use std::cell::Cell;

/// What PM interrupts took of a CPU's time, in ticks of the time base.
#[derive(Default)]
pub struct PmiTime {
    /// The last one ended then,
    end: Cell<u64>,
    /// and PM interrupts had taken so much more than a quarter of the time.
    excess: Cell<u64>,
    /// So long this one takes so far, but for entering and leaving it.
    took: Cell<u64>,
    /// They did not exceed it as the step began.
    was_quiet: Cell<bool>,
}

impl PmiTime {
    /// What the kernel takes to enter and leave an interrupt: a microsecond.
    const ENTRY: u64 = TIME_BASE_HZ / 1_000_000;

    /// The excess as the interrupt of now began.
    pub fn excess(&self) -> u64 {
        let begin = with_machine(|machine| machine.time_base) - self.took.get();
        let rest = begin - self.end.get();
        self.excess.get().saturating_sub(rest)
    }

    /// Whether events that overflow all the time are held back: PM interrupts exceed their share by a
    /// tenth of a second.
    pub fn is_outrun(&self) -> bool {
        self.excess() > TIME_BASE_HZ / 10
    }

    /// A sample was written. Returns when, and how long the interrupt takes.
    pub fn pass(&self) -> (u64, u64) {
        with_machine(|machine| {
            let ticks = machine.kind.ticks_of_sample();
            machine.time_base += ticks;
            self.took.set(self.took.get() + ticks);
            (machine.time_base, self.took.get() + Self::ENTRY)
        })
    }

    /// The interrupt ends. Returns how long it took.
    pub fn end(&self) -> u64 {
        let excess = self.excess() + 3 * (self.took.get() + Self::ENTRY);
        self.excess.set(excess.min(TIME_BASE_HZ / 5));
        self.end.set(with_machine(|machine| machine.time_base));
        self.took.take()
    }
}

impl PerfCore {
    /// A step begins.
    pub fn begin_step(&self) {
        for cpu in &self.cpus {
            let is_quiet = cpu.pmi_time.excess() == 0;
            cpu.pmi_time.was_quiet.set(is_quiet);
        }
    }

    /// Whether PM interrupts did not exceed their share as the step began, on this CPU, or on any.
    pub fn was_quiet(&self, cpu: Option<usize>) -> bool {
        let mut cpus = self.cpus.iter().enumerate();
        cpus.any(|(here, state)| {
            cpu.is_none_or(|cpu| cpu == here) && state.pmi_time.was_quiet.get()
        })
    }
}

impl Event {
    /// A sample for `ended` occurrences was one too many for a CPU that PM interrupts outrun, `now`, in
    /// an interrupt that `took` so long. Unless those of the event take less than a 16th of the time,
    /// the period that has begun is 8 times as long as that one, up to a million, or 8 times that of an
    /// event with a frequency.
    pub fn hold_back(&self, ended: u64, now: u64, took: u64) {
        let since = now - self.outran.replace(now);
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
            self.is_held.set(!is_frequency);
        }
    }

    /// The driver may have let the event go as its counter started: it has as much left as its period.
    /// PM interrupts must not exceed their share then.
    pub fn see_whether_let_go(&self) {
        if !self.is_held.get() {
            return;
        }
        let told = self.last_period();
        let (length, left) = self.period.get();
        if told == length {
            return;
        }
        let (id, own) = (self.id, self.sample_period());
        let right = left + told as i64 - length as i64 == own as i64;
        ensure(right && PerfCore::get().was_quiet(self.oncpu.get()), || {
            format!("event {id} has {left} of {length} left and is let go with {told}")
        });
        self.period.set((told, own as i64));
        self.is_held.set(told != own);
    }
}

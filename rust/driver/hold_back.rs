// SPDX-License-Identifier: GPL-2.0

//! PMIs that outrun the CPU: the events that cause them are held back.
//!
//! An event with a period of a few counts overflows again as soon as its PMI has returned. perf
//! core throttles an event that has too many samples in a tick, but has it go on when its task is
//! switched in or its period is set anew, and allows each new event as many. With a program that
//! does so, hardly anything but PMIs runs on the CPU.
//!
//! So each CPU keeps by how much its PMIs exceed a quarter of the time. From a tenth of a second
//! on, an event whose PMIs take a good part of it gets a longer period next, again and again,
//! until PMIs have taken no more than their share. `period_left` and `last_period` have the longer
//! period, so counts stay right, a switch during the storm does not end it, and its sample says for
//! how many events it stands.

use super::{
    count,
    cpu_state::ThisCpu,
    event, //
};
use crate::{
    perf::{
        CounterState,
        Event,
        PmiCell, //
    },
    power::machine, //
};

/// Ticks of the time base in a second.
const SECOND: u64 = machine::TICKS_PER_SECOND;
/// What the kernel takes to enter and leave a PMI, in which the handler sees no time: about a
/// microsecond.
const ENTRY: u64 = SECOND / 1_000_000;
/// The excess from which events are held back,
const LIMIT: u64 = SECOND / 10;
/// and the most that a storm leaves.
const MOST: u64 = SECOND / 5;

/// The time that PMIs take of a CPU, in ticks of the time base.
#[derive(Default)]
pub(super) struct PmiTime {
    /// When the last PMI was handled.
    end: PmiCell<u64>,
    /// By how much PMIs exceeded their share then.
    excess: PmiCell<u64>,
}

impl PmiTime {
    /// By how much PMIs exceed their share at the time `now`, after the last one.
    #[inline(always)]
    pub(super) fn excess(&self, now: u64) -> u64 {
        let rest = now.wrapping_sub(self.end.get());
        self.excess.get().saturating_sub(rest)
    }

    /// Accounts a PMI that began at `start`, with this `excess`. Returns how long it took.
    #[inline(always)]
    pub(super) fn account(&self, start: u64, excess: u64) -> u64 {
        let end = machine::time_base();
        let took = end.wrapping_sub(start);
        // A PMI makes up for three times as long without any: a quarter of the time.
        let excess = excess.wrapping_add(took.wrapping_add(ENTRY).wrapping_mul(3));
        self.excess.set(excess.min(MOST));
        self.end.set(end);
        took
    }
}

/// Whether PMIs with this excess are too many.
#[inline(always)]
pub(super) fn is_outrun(excess: u64) -> bool {
    excess > LIMIT
}

/// How many times longer the next period is. perf core ends a period of an event with a frequency
/// that has more than eight times as many events left as it wants.
const FACTOR: u64 = 8;
/// The longest period of an event that is held back.
const LONGEST: u64 = 1 << 20;
/// An event is rare if its PMIs take less than this part of the time.
const RARE: u64 = 16;
/// An event keeps when it overflowed last in units of so many ticks: half a microsecond.
const STAMP_SHIFT: u32 = 8;

/// Holds back an event of which a sample for `ended` events was reported in a PMI that began at
/// `start`. An event that causes few of the PMIs is left alone.
#[cold]
#[inline(never)]
pub(super) fn hold_back(this_cpu: &ThisCpu, event: &Event, ended: u64, start: u64) {
    let Some(index) = event::counter(event) else {
        return;
    };
    let hw = event.hw_mut(this_cpu.irqs_off());
    let now = machine::time_base();
    // CAST: The lower bits, which are the same again after half an hour.
    let stamp = (now >> STAMP_SHIFT) as u32;
    let since = stamp.wrapping_sub(hw.stamp());
    hw.set_stamp(stamp);
    let took = now.wrapping_sub(start).wrapping_add(ENTRY);
    let is_rare = u64::from(since) > took.wrapping_mul(RARE) >> STAMP_SHIFT;
    let is_frequency = event.attr().freq();
    let counts = if is_frequency {
        hw.sample_period()
    } else {
        ended
    };
    let longer = counts.saturating_mul(FACTOR).min(LONGEST);
    let more = longer.saturating_sub(hw.last_period());
    let left = hw.period_left();
    // If nothing is left, perf core has the event begin another period.
    if is_rare || left <= 0 || more == 0 {
        return;
    }
    // CAST: At most `LONGEST`.
    let left = left.saturating_add(more as i64);
    hw.set_last_period(longer);
    hw.set_period_left(left);
    // Nobody asks for particular samples of an event with a frequency.
    event::set_held(this_cpu, event, !is_frequency);
    if hw.state() == CounterState::Running {
        count::restart(&hw, index, count::preload(left));
    }
}

/// Another period of an event begins before the one that runs has ended.
#[cold]
#[inline(never)]
pub(super) fn end(this_cpu: &ThisCpu, event: &Event) {
    event::set_held(this_cpu, event, false);
}

/// Lets an event go whose counter starts with more left than its period. If it was held back and
/// the storm is over, its period ends after as many events as it asks for. PM interrupts must be
/// masked or the PMU frozen.
#[cold]
#[inline(never)]
pub(super) fn let_go(this_cpu: &ThisCpu, event: &Event) {
    if !event::is_held(event) || this_cpu.pmi_time.excess(machine::time_base()) != 0 {
        return;
    }
    let hw = event.hw_mut(this_cpu.irqs_off());
    let (period, longer) = (hw.sample_period(), hw.last_period());
    // CAST: perf core takes no period of 2^63 or more.
    let less = hw.period_left().wrapping_sub(period as i64);
    hw.set_period_left(period as i64);
    // CAST: Positive, as more is left than the period.
    let ends = longer.wrapping_sub(less as u64);
    hw.set_last_period(ends);
    event::set_held(this_cpu, event, ends != period);
}

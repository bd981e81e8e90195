// SPDX-License-Identifier: GPL-2.0

//! Throttling: events whose PMIs leave the CPU little time get longer periods.
//!
//! An event with a period of a few counts overflows again as soon as its PMI has returned. perf
//! core throttles an event that has too many samples in a tick, but it starts the event again when
//! its task is scheduled in or its period is set, and allows each new event as many samples. A
//! program that does so leaves the CPU to PMIs.
//!
//! So each CPU records by how much its PMIs exceed a quarter of the time (`pmi_time.rs`). From a
//! tenth of a second on, an event whose PMIs take a good part of it gets a longer period next,
//! again and again, until PMIs take no more than their share. `period_left` and `last_period` have
//! the longer period: counts stay right, a context switch does not end the throttling, and the
//! sample states for how many events it stands.

use super::event::Event;
use super::{
    cpu_state::ThisCpu,
    event::counter,
    period,
    pmi_time::ENTRY, //
};
use crate::{
    perf::CounterState,
    power::machine, //
};

/// The factor by which the next period is longer. perf core ends a period of an event with a
/// frequency if more than eight times as many events are left as it wants
/// (`perf_adjust_period()` in `kernel/events/core.c`).
const FACTOR: u64 = 8;
/// The longest period of a throttled event.
const LONGEST: u64 = 1 << 20;
/// An event is rare if its PMIs take less than this part of the time.
const RARE: u64 = 16;
/// The unit of [`EventData::overflow_time`](super::event::EventData::overflow_time) is two to this
/// power of ticks: half a microsecond.
const TIME_SHIFT: u32 = 8;

/// Throttles an event of which a sample for `ended` events was reported in a PMI that began at
/// `start`, unless the event causes few of the PMIs.
pub(super) fn throttle(this_cpu: &ThisCpu, event: &Event, ended: u64, start: u64) {
    let Some(index) = counter(event) else {
        return;
    };
    let hw = event.hw_mut(this_cpu.irqs_off());
    let now = machine::time_base();
    // CAST: The lower bits, which repeat after half an hour.
    let time = (now >> TIME_SHIFT) as u32;
    let since = time.wrapping_sub(event.data().overflow_time.replace(time));
    let took = now.wrapping_sub(start).wrapping_add(ENTRY);
    let is_rare = u64::from(since) > took.wrapping_mul(RARE) >> TIME_SHIFT;
    let is_frequency = event.attr().freq();
    let counts = if is_frequency {
        hw.sample_period()
    } else {
        ended
    };
    let longer = counts.saturating_mul(FACTOR).min(LONGEST);
    let more = longer.saturating_sub(hw.last_period());
    let left = hw.period_left();
    // If nothing is left, perf core has started another period.
    if is_rare || left <= 0 || more == 0 {
        return;
    }
    // CAST: At most `LONGEST`.
    let left = left.saturating_add(more as i64);
    hw.set_last_period(longer);
    hw.set_period_left(left);
    // The owner of an event with a frequency asked for no particular samples.
    event.data().is_throttled.set(!is_frequency);
    if hw.state() == CounterState::Running {
        period::restart(&hw, index, period::preload(left));
    }
}

/// Ends the throttling of an event whose counter starts with more left than its period, if PMIs
/// take little time again: the period ends after as many events as the event asks for. PM
/// interrupts must be masked or the PMU frozen.
pub(super) fn unthrottle(this_cpu: &ThisCpu, event: &Event) {
    if !event.data().is_throttled.get() || this_cpu.pmi_time.excess(machine::time_base()) != 0 {
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
    event.data().is_throttled.set(ends != period);
}

// SPDX-License-Identifier: GPL-2.0

//! Throttling: an event gets longer periods if its PMIs leave the CPU too little time.
//!
//! An event with a period of a few counts overflows again as soon as its PMI returns. perf core
//! throttles an event that has too many samples in a tick. But perf core starts the event again
//! when its task is scheduled in or its period is set, and it allows each new event as many
//! samples. A program that causes this repeatedly keeps the CPU busy with PMIs.
//!
//! So each CPU records the excess of its PMI time over a quarter of all time (`pmi_time.rs`). If
//! the excess is above a tenth of a second, an event whose PMIs take a large part of the time gets
//! a longer period next, repeatedly, until PMIs take no more than their share. `period_left` and
//! `last_period` have the longer period. So counts stay correct, a context switch does not end the
//! throttling, and the sample reports the number of events that it stands for.

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
/// frequency if more than eight times the wanted period remains (`perf_adjust_period()` in
/// `kernel/events/core.c`).
const FACTOR: u64 = 8;
/// The longest period of a throttled event.
const LONGEST: u64 = 1 << 20;
/// An event is rare if its PMIs take less than 1/`RARE` of the time.
const RARE: u64 = 16;
/// The unit of [`EventData::overflow_time`](super::event::EventData::overflow_time) is
/// 2^`TIME_SHIFT` ticks: half a microsecond.
const TIME_SHIFT: u32 = 8;

/// Throttles an event, unless it causes few of the PMIs. A sample of the event for `ended` events
/// was reported in a PMI that began at `began`.
pub(super) fn throttle(this_cpu: &ThisCpu, event: &Event, ended: u64, began: u64) {
    let Some(index) = counter(event) else {
        return;
    };
    let hw = event.hw_mut(this_cpu.irqs_off());
    let now = machine::time_base();
    // CAST: Only the lower bits are needed; they repeat after half an hour.
    let time = (now >> TIME_SHIFT) as u32;
    let since = time.wrapping_sub(event.data().overflow_time.replace(time));
    let took = now.wrapping_sub(began).wrapping_add(ENTRY);
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
    // If no events remain, perf core has started another period.
    if is_rare || left <= 0 || more == 0 {
        return;
    }
    // CAST: `more` is at most `LONGEST`.
    let left = left.saturating_add(more as i64);
    hw.set_last_period(longer);
    hw.set_period_left(left);
    // The owner of an event with a frequency did not ask for a certain number of samples.
    event.data().is_throttled.set(!is_frequency);
    if hw.state() == CounterState::Running {
        period::restart(&hw, index, period::preload(left));
    }
}

/// Ends the throttling of an event whose counter would start with more than its period remaining,
/// if PMIs take little time again. The current period then ends after the number of events that the
/// owner asked for. PM interrupts must be masked or the PMU frozen.
pub(super) fn unthrottle(this_cpu: &ThisCpu, event: &Event) {
    if !event.data().is_throttled.get() || this_cpu.pmi_time.excess(machine::time_base()) != 0 {
        return;
    }
    let hw = event.hw_mut(this_cpu.irqs_off());
    let (period, longer) = (hw.sample_period(), hw.last_period());
    // CAST: perf core refuses periods of 2^63 or more.
    let less = hw.period_left().wrapping_sub(period as i64);
    hw.set_period_left(period as i64);
    // CAST: `less` is positive: the caller checked that more than the period remains.
    let ends = longer.wrapping_sub(less as u64);
    hw.set_last_period(ends);
    event.data().is_throttled.set(ends != period);
}

// SPDX-License-Identifier: GPL-2.0

//! Counting: 64-bit counts from 32-bit counters, and the remaining part of a sampling period.
//!
//! A counter raises an alert when it becomes negative, that is, when it reaches 2^31. The counter
//! of a sampling event starts at 2^31 minus the remaining period, so the alert comes at the end of
//! the period. Any other counter starts at 0 or, if it still has the event's last value, continues
//! from there. The handler of its alert at 2^31 adds the count to the event before the counter
//! wraps.
//!
//! `prev_count` is the counter's value when the event's count was last updated.

use super::event::Event;
use super::{
    cpu_state::{
        local_pmu,
        ExclusiveCpu,
        ThisCpu, //
    },
    event::{
        counter,
        counts_nothing,
        is_ebb,
        set_program, //
    },
    period::{
        left_after,
        preload,
        SAMPLE_DUE, //
    },
    throttle, //
};
use crate::{
    perf::{
        CounterState,
        HwMut,
        IrqsOff, //
    },
    power::{
        exec::current_program,
        pmu, //
    }, //
};

/// Returns the start value for the counter of a running event. Starts a new period if `period_left`
/// is 0. PM interrupts must be masked or the PMU frozen.
fn running_value(this_cpu: &ThisCpu, event: &Event) -> u32 {
    let hw = event.hw_mut(this_cpu.irqs_off());
    // CAST: perf core refuses periods of 2^63 or more.
    let period = hw.sample_period() as i64;
    if period == 0 {
        return 0;
    }
    if hw.period_left() == 0 {
        hw.set_period_left(period);
        // CAST: `period` was cast from a `u64` below 2^63.
        hw.set_last_period(period as u64);
        event.data().is_throttled.set(false);
    } else if hw.period_left() > period {
        throttle::unthrottle(this_cpu, event);
    }
    preload(left_after(hw.period_left(), 0))
}

/// Returns the start value for an event's counter; 0 for a stopped event. `known` is the counter's
/// value, if it is known: an event without samples continues from it if the counter still has the
/// event's value. PM interrupts must be masked or the PMU frozen.
pub(super) fn start_value(this_cpu: &ThisCpu, event: &Event, known: Option<u32>) -> u32 {
    let hw = event.hw();
    match (hw.state(), known) {
        (CounterState::Stopped, _) => 0,
        (CounterState::Running, Some(value))
            if hw.sample_period() == 0 && hw.prev_count() == value.into() =>
        {
            value
        }
        (CounterState::Running, _) => running_value(this_cpu, event),
    }
}

/// Returns the start value for an EBB event's counter: the value that the program had in it. A
/// negative value from before the last `execve` becomes 0: it belongs to an alert of the old
/// program, and the new program would get that alert.
pub(super) fn program_value(irqs_off: &IrqsOff<'_>, event: &Event) -> u32 {
    // CAST: `collect` stored the 32-bit value of a counter there.
    let value = event.hw().prev_count() as u32;
    if set_program(irqs_off, event, current_program()) && value >= pmu::NEGATIVE {
        0
    } else {
        value
    }
}

/// The largest step back of a counter. A counter steps back when it counted events early and they
/// did not complete. This was seen on POWER7; the built-in driver allows for it on every processor
/// (`arch/powerpc/perf/core-book3s.c`).
const STEP_BACK: u32 = 255;

/// Returns the number of events between two values of a counter, which may wrap once.
pub(super) fn delta(before: i64, now: u32) -> u64 {
    // CAST: `prev_count` holds a counter's 32-bit value.
    let before = before as u32;
    if before
        .checked_sub(now)
        .is_some_and(|back| back <= STEP_BACK)
    {
        return 0;
    }
    now.wrapping_sub(before).into()
}

/// Updates the count of an event; perf core's callback [`read`](crate::perf::Pmu::read).
pub(super) fn read(irqs_off: &IrqsOff<'_>, event: &Event) {
    let Some(index) = counter(event) else {
        return;
    };
    // The PMU may run. A PMI after the counter is read could stop the event, or restart the counter
    // from the value in `prev_count`, and the same events would be counted twice. So PMIs are
    // masked.
    local_pmu(irqs_off).with_pmis_masked(|| collect(irqs_off, event, index));
}

/// Updates an event on the counter `index`. Returns the counter's value; `None` if the event is
/// stopped. PM interrupts must be masked or the PMU frozen.
fn collect(irqs_off: &IrqsOff<'_>, event: &Event, index: usize) -> Option<u32> {
    let hw = event.hw_mut(irqs_off);
    match hw.state() {
        CounterState::Stopped => None,
        // The program itself reads the counter. Save its value for the next time on a PMU.
        CounterState::Running if is_ebb(event) => {
            let value = pmu::read_pmc(index);
            hw.set_prev_count(value.into());
            Some(value)
        }
        CounterState::Running => Some(update(&hw, index)),
    }
}

/// Removes an event from its counter, if it has one, and updates its count. The PMU must be frozen.
pub(super) fn unload_counter(this_cpu: &ExclusiveCpu, event: &Event) {
    let Some(index) = counter(event) else {
        return;
    };
    let value = collect(this_cpu.irqs_off(), event, index);
    // Must precede any write to the counter: a probe that reads the event would treat the written
    // value as a wrap of the counter.
    let hw = event.hw_mut(this_cpu.irqs_off());
    hw.set_idx(0);
    // A probe in `collect` may have stopped the event and so cleared the counter.
    let is_unchanged =
        |value: &u32| hw.state() == CounterState::Running && hw.prev_count() == i64::from(*value);
    if let Some(value) = value.filter(is_unchanged) {
        this_cpu.state().cache.record_pmc(index, value);
    }
}

/// Adds the counter's events to the event's count and subtracts them from the remaining period.
/// Returns the counter's value. PM interrupts must be masked.
fn update(hw: &HwMut<'_>, index: usize) -> u32 {
    let before = hw.prev_count();
    let now = pmu::read_pmc(index);
    let delta = delta(before, now);
    // A BPF program at a probe in here may read the event (`Pmu::read`). Then it has updated the
    // event, and this call must not do so again.
    if delta == 0 || !hw.replace_prev_count(before, now.into()) {
        return now;
    }
    hw.add_count(delta);
    if hw.sample_period() != 0 {
        let left = left_after(hw.period_left(), delta);
        hw.set_period_left(if left == 0 { SAMPLE_DUE } else { left });
    }
    now
}

/// Stops an event; perf core's callback [`stop`](crate::perf::Pmu::stop).
///
/// Hardware cannot stop a single counter: the counter continues from 0, and the handler ignores its
/// alerts.
///
/// This does not change the counter of an EBB event, which belongs to the program. perf core stops
/// a whole group when it throttles a software event in it.
pub(super) fn stop(this_cpu: &ThisCpu, event: &Event) {
    let Some(index) = counter(event) else {
        return;
    };
    if is_ebb(event) {
        return;
    }
    // The PMU may run, see `Pmu::stop`. A PMI in here could stop the event first. It could also
    // interrupt the update of the event's page, which would then show the old count with the new
    // `prev_count`. So PMIs are masked.
    local_pmu(this_cpu.irqs_off()).with_pmis_masked(|| {
        let hw = event.hw_mut(this_cpu.irqs_off());
        if hw.state() == CounterState::Stopped {
            return;
        }
        update(&hw, index);
        hw.set_state(CounterState::Stopped);
        pmu::write_pmc(index, 0);
        hw.update_userpage();
    });
}

/// Restarts a stopped event; perf core's callback [`start`](crate::perf::Pmu::start).
pub(super) fn start(this_cpu: &ThisCpu, event: &Event) {
    let Some(index) = counter(event) else {
        return;
    };
    if is_ebb(event) || counts_nothing(event) {
        return;
    }
    // The PMU may run, see `Pmu::start`. A PMI between the write of the counter and `set_state`
    // would find the event stopped and set its counter to 0. A PMI in `update_userpage` would make
    // the event's page inconsistent, see `stop`. So PMIs are masked.
    local_pmu(this_cpu.irqs_off()).with_pmis_masked(|| {
        let hw = event.hw_mut(this_cpu.irqs_off());
        if hw.state() == CounterState::Running {
            return;
        }
        let value = running_value(this_cpu, event);
        hw.set_prev_count(value.into());
        pmu::write_pmc(index, value);
        hw.set_state(CounterState::Running);
        hw.update_userpage();
    });
}

// SPDX-License-Identifier: GPL-2.0

//! Counting: 64-bit counts from 32-bit counters, and what is left of a sampling period.
//!
//! A counter raises an alert when it becomes negative, that is, when it reaches 2^31. The counter
//! of a sampling event starts at 2^31 less what is left of the period, so the alert comes when the
//! period is over. Any other counter starts at 0, and the handler of the alert at 2^31 collects the
//! count before the counter wraps.
//!
//! `prev_count` is the counter's value when the event's count was last updated.

use super::{
    cpu_state::{
        local_pmu,
        ThisCpu, //
    },
    event::{
        counter,
        counts_nothing,
        is_ebb, //
    },
    hold_back, //
};
use crate::{
    perf::{
        CounterState,
        Event,
        HwMut,
        IrqsOff, //
    },
    power::pmu, //
};

/// The value from which a counter becomes negative after `left` more events.
pub(super) fn preload(left: i64) -> u32 {
    // A period of more than 2^31 takes several alerts. A counter that started negative would raise
    // none, so at least one event is left.
    let left = left.clamp(1, i64::from(pmu::NEGATIVE));
    // CAST: At most 2^31 by the line above.
    pmu::NEGATIVE - left as u32
}

/// What `period_left` holds when the period is over and its sample is still to come. 0 would start
/// a new period: perf core stores it to say that the event's period was changed.
const SAMPLE_DUE: i64 = i64::MIN;

/// What is left of a period `delta` events after `period_left` was `left`; negative if the period
/// was over before the last of them.
pub(super) fn left_after(left: i64, delta: u64) -> i64 {
    // CAST: At most 2^32.
    (if left == SAMPLE_DUE { 0 } else { left }) - delta as i64
}

/// The value to start the counter of a running event with. Starts a new period if `period_left` is
/// 0. PM interrupts must be masked or the PMU frozen.
fn running_value(this_cpu: &ThisCpu, event: &Event) -> u32 {
    let hw = event.hw_mut(this_cpu.irqs_off());
    // CAST: perf core takes no period of 2^63 or more.
    let period = hw.sample_period() as i64;
    if period == 0 {
        return 0;
    }
    if hw.period_left() == 0 {
        hw.set_period_left(period);
        // CAST: As above.
        hw.set_last_period(period as u64);
        hold_back::end(this_cpu, event);
    } else if hw.period_left() > period {
        hold_back::let_go(this_cpu, event);
    }
    preload(left_after(hw.period_left(), 0))
}

/// The value to start an event's counter with, 0 for an event that is stopped. PM interrupts must
/// be masked or the PMU frozen.
#[inline(never)] // Programs with EBBs need not save registers for it.
pub(super) fn initial_value(this_cpu: &ThisCpu, event: &Event) -> u32 {
    match event.hw().state() {
        CounterState::Stopped => 0,
        CounterState::Running => running_value(this_cpu, event),
    }
}

/// Starts the counter of an event anew, with this value. The PMU must be frozen.
#[inline(always)]
pub(super) fn restart(hw: &HwMut<'_>, index: usize, value: u32) {
    hw.set_prev_count(value.into());
    pmu::write_pmc(index, value);
    hw.update_userpage();
}

/// The furthest that a counter steps back, when events that it counted ahead of time turn out not
/// to complete. Seen on POWER7; the built-in driver allows for it on every processor
/// (`arch/powerpc/perf/core-book3s.c`).
const STEP_BACK: u32 = 255;

/// The events that a counter counted between two values, wrapping at most once.
pub(super) fn delta(before: i64, now: u32) -> u64 {
    // CAST: `prev_count` holds a counter's value.
    let before = before as u32;
    if before
        .checked_sub(now)
        .is_some_and(|back| back <= STEP_BACK)
    {
        return 0;
    }
    now.wrapping_sub(before).into()
}

/// See [`crate::perf::Pmu::read`].
pub(super) fn read(irqs_off: &IrqsOff<'_>, event: &Event) {
    let Some(index) = counter(event) else {
        return;
    };
    // The PMU may run. A PMI after the counter is read could stop the event, or restart the counter
    // from the value that `prev_count` has: these events would be counted twice. So mask it.
    local_pmu(irqs_off).with_pmis_masked(|| collect(irqs_off, event, index));
}

/// Brings an event, which is on the counter `index`, up to date. PM interrupts must be masked or
/// the PMU frozen.
#[inline(always)] // For `Driver::del`, as a read is no switch.
pub(super) fn collect(irqs_off: &IrqsOff<'_>, event: &Event, index: usize) {
    let hw = event.hw_mut(irqs_off);
    match hw.state() {
        CounterState::Stopped => {}
        // The program reads the counter itself. Save its value for the next time on a PMU.
        CounterState::Running if is_ebb(event) => {
            hw.set_prev_count(pmu::read_pmc(index).into());
        }
        CounterState::Running => update(&hw, index),
    }
}

/// Adds what the counter has counted to the event's count, and takes it off the period. PM
/// interrupts must be masked.
#[inline]
fn update(hw: &HwMut<'_>, index: usize) {
    let before = hw.prev_count();
    let now = pmu::read_pmc(index);
    let delta = delta(before, now);
    if delta == 0 {
        return;
    }
    // A BPF program at a probe in here may read the event (`Pmu::read`): then it is up to date.
    if !hw.replace_prev_count(before, now.into()) {
        return;
    }
    hw.add_count(delta);
    if hw.sample_period() == 0 {
        return;
    }
    let left = left_after(hw.period_left(), delta);
    hw.set_period_left(if left == 0 { SAMPLE_DUE } else { left });
}

/// See [`crate::perf::Pmu::stop`].
///
/// Hardware cannot stop a single counter: it counts on from 0, and the handler ignores its alerts.
///
/// The counter of an EBB event is left alone, as it is the program's: perf core stops the whole
/// group when it throttles a software event in it.
pub(super) fn stop(this_cpu: &ThisCpu, event: &Event) {
    let Some(index) = counter(event) else {
        return;
    };
    if is_ebb(event) {
        return;
    }
    // The PMU may run, see `Pmu::stop`. A PMI in here could stop the event first, or update the
    // event's page in the middle of its update here, which would put the old count beside the new
    // `prev_count`: mask it.
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

/// See [`crate::perf::Pmu::start`].
pub(super) fn start(this_cpu: &ThisCpu, event: &Event) {
    let Some(index) = counter(event) else {
        return;
    };
    if is_ebb(event) || counts_nothing(event) {
        return;
    }
    // The PMU may run, see `Pmu::start`. A PMI between the write of the counter and `set_state`
    // would take the event for a stopped one and set its counter to 0, and one in the middle of
    // `update_userpage` would spoil the event's page, see `stop`: mask it.
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

// SPDX-License-Identifier: GPL-2.0

//! Which event is on which counter of the frozen PMU, and the values that the counters start with.

use super::{
    count,
    cpu_state::{
        ExclusiveCpu,
        ThisCpu, //
    },
    ebb,
    event::counter, //
};
use crate::{
    perf::{
        CounterState,
        Event, //
    },
    power::pmu, //
};

/// Takes an event off its counter unless that is `index`, where it is to be from now on.
pub(super) fn unload_counter(this_cpu: &ExclusiveCpu, event: &Event, index: usize) {
    if let Some(old) = counter(event).filter(|&old| old != index) {
        count::read(this_cpu.irqs_off(), event);
        // Before anything is written there: a probe that reads the event must not take that for a
        // wrap.
        event.hw_mut(this_cpu.irqs_off()).set_idx(0);
        this_cpu.state().left.add_stale(1 << old);
    }
}

/// Puts an event on the counter `index`. Returns the counter's value.
#[inline(always)] // For events that come one after another.
pub(super) fn load_counter(this_cpu: &ThisCpu, event: &Event, index: usize, ebb: bool) -> u32 {
    let value = if ebb {
        ebb::initial_value(this_cpu, event)
    } else {
        count::initial_value(this_cpu, event)
    };
    let hw = event.hw_mut(this_cpu.irqs_off());
    hw.set_prev_count(value.into());
    pmu::write_pmc(index, value);
    place(this_cpu, event, index);
    value
}

/// Starts the counter `index` for an event that left it, where it stopped if it only counts.
/// Returns the counter's value.
pub(super) fn reload_counter(this_cpu: &ExclusiveCpu, event: &Event, index: usize) -> u32 {
    let left = this_cpu.state().left.value(index);
    let hw = event.hw_mut(this_cpu.irqs_off());
    let counts_on = hw.state() == CounterState::Running && hw.sample_period() == 0;
    if counts_on && hw.prev_count() == left.into() {
        return left;
    }
    let value = count::initial_value(this_cpu, event);
    hw.set_prev_count(value.into());
    if value != left {
        pmu::write_pmc(index, value);
    }
    value
}

/// Notes that an event is on the counter `index`.
#[inline]
pub(super) fn place(this_cpu: &ThisCpu, event: &Event, index: usize) {
    let hw = event.hw_mut(this_cpu.irqs_off());
    // CAST: One of six counters.
    hw.set_idx(index as u8 + 1);
    hw.update_userpage();
}

/// Sets `counters` to 0.
pub(super) fn clear_counters(counters: u8) {
    if counters == 0 {
        return;
    }
    for index in 0..pmu::COUNTERS {
        if counters & 1 << index != 0 {
            pmu::write_pmc(index, 0);
        }
    }
}

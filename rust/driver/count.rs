// SPDX-License-Identifier: GPL-2.0

//! Counts of single events: 64 bits out of counters of 32, and what is left of a sample's period.
//!
//! A counter of a sampling event starts at 2^31 less what is left of the period, so that it becomes
//! negative, and alerts, when the period is over; every other counter starts at 0 and alerts at
//! 2^31. `prev_count` is the counter's value up to which the event's count is up to date.

use super::{
    is_ebb,
    Here, //
};
use crate::{
    perf::{
        Event,
        State, //
    },
    power::{
        interrupt::masked,
        pmu, //
    },
};
use kernel::sync::atomic::Relaxed;

/// The counter an event is on, 0 for PMC1, as the register functions take it.
pub(super) fn counter(event: &Event) -> Option<usize> {
    // CAST: One of six counters.
    event.hw().idx().checked_sub(1).map(|index| index as usize)
}

/// What a counter starts with when `left` events are left of the period.
pub(super) fn start_value(left: i64) -> u32 {
    // A period of more than 2^31 takes several rounds of the counter. A value that is negative
    // already would not alert, so at least one event is left.
    let left = left.clamp(1, i64::from(pmu::NEGATIVE));
    // CAST: At most 2^31 by the line above.
    pmu::NEGATIVE - left as u32
}

/// What `period_left` is when nothing is left and the sample is yet to come. 0 itself is perf core's
/// word for a period that begins anew.
const DUE: i64 = i64::MIN;

/// What is left of a period, of which `period_left` is `left`, `delta` events later; negative if it
/// was over earlier.
pub(super) fn left_after(left: i64, delta: u64) -> i64 {
    // CAST: At most 2^32.
    (if left == DUE { 0 } else { left }) - delta as i64
}

/// What a counter of `event` is to start with when it runs. No PMI may come meanwhile.
///
/// perf core sets what is left to 0 when the event has another period from now on.
fn running_value(here: &Here<'_>, event: &Event) -> u32 {
    let hw = event.hw();
    let period = hw.sample_period();
    if period == 0 {
        return 0;
    }
    if hw.period_left().load(Relaxed) == 0 {
        // CAST: perf core takes no period of 2^63 or more.
        hw.period_left().store(period as i64, Relaxed);
        hw.set_last_period(here, period);
    }
    start_value(left_after(hw.period_left().load(Relaxed), 0))
}

/// What a counter of `event` is to start with. No PMI may come meanwhile.
pub(super) fn initial_value(here: &Here<'_>, event: &Event) -> u32 {
    match event.hw().state() {
        State::Stopped => 0,
        State::Running => running_value(here, event),
    }
}

/// How far back a counter may step, when what it counted does not complete after all. Known of POWER7;
/// the kernel reckons with it on every processor (`arch/powerpc/perf/core-book3s.c`).
const STEP_BACK: u32 = 255;

/// Events between two values of a counter, of which it has counted through at most one wrap.
pub(super) fn delta(before: i64, now: u32) -> u64 {
    // CAST: A counter's value was stored there.
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
pub(super) fn read(event: &Event) {
    let hw = event.hw();
    let Some(index) = counter(event) else {
        return;
    };
    // A PMI in between could stop the counter, or start it with the value that `prev_count` had before.
    masked(|| match hw.state() {
        State::Stopped => {}
        // The program counts; all the kernel does is to keep the counter over a context switch.
        State::Running if is_ebb(event) => {
            hw.prev_count().store(pmu::read_pmc(index).into(), Relaxed);
        }
        State::Running => update(event, index),
    });
}

/// Adds what an event's counter has counted. No PMI may come meanwhile.
fn update(event: &Event, index: usize) {
    let hw = event.hw();
    let prev = hw.prev_count();
    let now = pmu::read_pmc(index);
    let delta = delta(prev.load(Relaxed), now);
    if delta == 0 {
        return;
    }
    prev.store(now.into(), Relaxed);
    event.add_count(delta);
    let left = left_after(hw.period_left().load(Relaxed), delta);
    hw.period_left()
        .store(if left == 0 { DUE } else { left }, Relaxed);
}

/// Stops an event's counter, as well as the hardware can: it counts on from 0, and its alerts are
/// ignored.
///
/// Not that of an EBB event, which is its program's: perf core stops a whole group when a software
/// event in it is throttled.
pub(super) fn stop(here: &Here<'_>, event: &Event) {
    let Some(index) = counter(event) else {
        return;
    };
    if is_ebb(event) {
        return;
    }
    // The PMU may run, see `Pmu::stop`, and its PMI may stop the event too.
    masked(|| {
        if event.hw().state() == State::Stopped {
            return;
        }
        update(event, index);
        event.hw().set_state(here, State::Stopped);
        pmu::write_pmc(index, 0);
    });
    event.update_userpage();
}

/// Starts an event's counter with what is left of its period.
pub(super) fn start(here: &Here<'_>, event: &Event) {
    let hw = event.hw();
    let Some(index) = counter(event) else {
        return;
    };
    if hw.state() == State::Running || is_ebb(event) {
        return;
    }
    // The PMU may run: see `Pmu::start`. To a PMI in between the event would be a stopped one, whose
    // counter is set to 0.
    masked(|| {
        let value = running_value(here, event);
        hw.prev_count().store(value.into(), Relaxed);
        pmu::write_pmc(index, value);
        hw.set_state(here, State::Running);
    });
    event.update_userpage();
}

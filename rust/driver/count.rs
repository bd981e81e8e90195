// SPDX-License-Identifier: GPL-2.0

//! Counts of single events: 64 bits out of counters of 32, and what is left of a sample's period.
//!
//! A counter of a sampling event starts at 2^31 less what is left of the period, so that it becomes
//! negative, and alerts, when the period is over; every other counter starts at 0 and alerts at
//! 2^31. `prev_count` is the counter's value up to which the event's count is up to date.

use super::is_ebb;
use super::Here;
use crate::perf::Event;
use crate::perf::State;
use crate::power::interrupt::masked;
use crate::power::pmu;
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

/// What a counter of `event` is to start with when it runs.
pub(super) fn running_value(event: &Event) -> u32 {
    match event.hw().sample_period() {
        0 => 0,
        _ => start_value(event.hw().period_left().load(Relaxed)),
    }
}

/// What a counter of `event` is to start with.
pub(super) fn initial_value(event: &Event) -> u32 {
    match event.hw().state() {
        State::Stopped => 0,
        State::Running => running_value(event),
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
    if hw.state() == State::Stopped {
        return;
    }
    if is_ebb(event) {
        // The program counts; all the kernel does is to keep the counter over a context switch.
        hw.prev_count().store(pmu::read_pmc(index).into(), Relaxed);
        return;
    }

    // A PMI in between could start the counter with the value that `prev_count` had before.
    masked(|| {
        let prev = hw.prev_count();
        let now = pmu::read_pmc(index);
        let delta = delta(prev.load(Relaxed), now);
        if delta == 0 {
            return;
        }
        prev.store(now.into(), Relaxed);
        event.add_count(delta);
        // CAST: At most 2^32. What is left may be none then: the sample comes with the alert.
        hw.period_left().add(-(delta as i64), Relaxed);
    });
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
    if event.hw().state() == State::Stopped || is_ebb(event) {
        return;
    }
    read(event);
    event.hw().set_state(here, State::Stopped);
    pmu::write_pmc(index, 0);
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
    let value = running_value(event);
    hw.prev_count().store(value.into(), Relaxed);
    pmu::write_pmc(index, value);
    // Last: a PMI before this takes the counter for one that is stopped, and sets it to 0.
    hw.set_state(here, State::Running);
    event.update_userpage();
}

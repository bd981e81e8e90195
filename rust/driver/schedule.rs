// SPDX-License-Identifier: GPL-2.0

//! Adding events to a CPU's PMU and deleting them, while it is disabled.
//!
//! perf core adds the events of a group in a transaction: [`Driver::add`] only collects them, and
//! [`Driver::commit_txn`] finds the image of all events of the CPU, which `pmu_enable` loads. If it
//! finds none, perf core cancels the transaction and deletes the events again.

use super::event::Event;
use super::{
    branch,
    count::unload_counter,
    cpu_state::ExclusiveCpu,
    event,
    image::Image,
    requests::{
        self,
        Requests, //
    },
    Driver, //
};
use crate::{
    isa207::{
        Assignment,
        Demand,
        Refusal,
        COUNTERS, //
    },
    perf::{
        CounterState,
        EventFlag,
        EventFlags, //
    }, //
};
use core::iter;
use kernel::prelude::*;

impl Driver {
    /// See [`crate::perf::Pmu::add`].
    #[inline]
    pub(super) fn add(&self, this_cpu: &ExclusiveCpu, event: &Event, flags: EventFlags) -> Result {
        let slots = this_cpu.slots();
        if slots.len() >= COUNTERS {
            return Err(EAGAIN);
        }
        // perf core adds events only in transactions today, but its interface allows others.
        if !this_cpu.state().in_transaction.get() {
            self.place(this_cpu, Iterator::chain(slots.iter(), iter::once(event)))?;
        }
        branch::event_changed(this_cpu, event);

        let starts = flags.contains(EventFlag::Start) && !event::counts_nothing(event);
        let counter_state = if starts {
            CounterState::Running
        } else {
            CounterState::Stopped
        };
        event.hw_mut(this_cpu.irqs_off()).set_state(counter_state);
        Ok(())
    }

    /// See [`crate::perf::Pmu::del`].
    #[inline]
    pub(super) fn del(&self, this_cpu: &ExclusiveCpu, event: &Event) {
        unload_counter(this_cpu, event);
        event.hw_mut(this_cpu.irqs_off()).update_userpage();
        branch::event_changed(this_cpu, event);
    }

    /// See [`crate::perf::Pmu::commit_txn`].
    #[inline]
    pub(super) fn commit_txn(&self, this_cpu: &ExclusiveCpu) -> Result {
        let (slots, state) = (this_cpu.slots(), this_cpu.state());
        // Do not place the events again if none is added: a software event leads the group, and its
        // members that count here are disabled.
        let is_new = |event: &Event| event::counter(event).is_none();
        if state.in_transaction.get() && slots.iter().any(is_new) {
            // After most context switches the same events return to a CPU.
            if !state.image_events.fit_again(slots) {
                self.place(this_cpu, slots.iter())?;
            }
        }
        state.in_transaction.set(false);
        Ok(())
    }

    /// Finds the image of `events`, which are to count together on the CPU, and stores it. Fails
    /// with `EAGAIN` if there is none.
    #[inline(never)] // Saves 42 of 803 instructions of a switch (`make bench`).
    fn place<'a>(
        &self,
        this_cpu: &ExclusiveCpu,
        events: impl Iterator<Item = &'a Event> + Clone,
    ) -> Result {
        let demands = events.clone().map(|event| event.data().demand);
        match self.model.assign(demands.clone()) {
            Ok(assignment) => set_image(this_cpu, events, demands, assignment),
            Err(why) => self.search(this_cpu, events, why).map_err(|_| EAGAIN)?,
        }
        Ok(())
    }

    /// Finds the image of `events` by alternative codes, as they cannot count together by those
    /// asked for, for the reason `why`, and stores it.
    #[cold] // Takes 1.2 of the 1.4 KiB of stack that `place` took with it.
    fn search<'a>(
        &self,
        this_cpu: &ExclusiveCpu,
        events: impl Iterator<Item = &'a Event> + Clone,
        why: Refusal,
    ) -> Result<(), Refusal> {
        let requests = Requests::new(events.clone().map(requests::request))?;
        let solution = self
            .model
            .solve_by_other_codes(requests.as_slice(), self.machine, why)?;
        set_image(this_cpu, events, solution.demands(), *solution);
        Ok(())
    }
}

/// Stores the image of `events`, which ask for these demands. Takes an event off its counter if it
/// gets another one, which it may get from another event.
fn set_image<'a>(
    this_cpu: &ExclusiveCpu,
    events: impl Iterator<Item = &'a Event> + Clone,
    demands: impl Iterator<Item = Demand>,
    assignment: Assignment,
) {
    let state = this_cpu.state();
    let is_ebb = events.clone().next().is_some_and(event::is_ebb);
    state.image.set(Image::new(assignment, is_ebb));
    let events = events.zip(demands).zip(assignment.pmcs.iter());
    for (index, ((event, demand), pmc)) in (0..COUNTERS).zip(events) {
        if event::counter(event).is_some_and(|on| on != pmc.index()) {
            unload_counter(this_cpu, event);
        }
        state.image_events.put(index, (event.id(), demand));
    }
}

// SPDX-License-Identifier: GPL-2.0

//! Adds events to a CPU's PMU and deletes them, while the PMU is disabled.
//!
//! perf core adds the events of a group in a transaction: [`Driver::add`] only collects them.
//! [`Driver::commit_txn`] finds the image of all events of the CPU, and `pmu_enable` loads it. If
//! there is no image, perf core cancels the transaction and deletes the events again.

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
    /// Adds an event to this CPU; perf core's callback [`add`](crate::perf::Pmu::add).
    #[inline]
    pub(super) fn add(&self, this_cpu: &ExclusiveCpu, event: &Event, flags: EventFlags) -> Result {
        let slots = this_cpu.slots();
        if slots.len() >= COUNTERS {
            return Err(EAGAIN);
        }
        // perf core currently adds events only in transactions, but its interface allows other
        // uses.
        if !this_cpu.state().in_transaction.get() {
            self.place(this_cpu, Iterator::chain(slots.iter(), iter::once(event)))?;
        }
        branch::note_event_change(this_cpu, event);

        let starts = flags.contains(EventFlag::Start) && !event::counts_nothing(event);
        let counter_state = if starts {
            CounterState::Running
        } else {
            CounterState::Stopped
        };
        event.hw_mut(this_cpu.irqs_off()).set_state(counter_state);
        Ok(())
    }

    /// Deletes an event from this CPU; perf core's callback [`del`](crate::perf::Pmu::del).
    #[inline]
    pub(super) fn del(&self, this_cpu: &ExclusiveCpu, event: &Event) {
        unload_counter(this_cpu, event);
        event.hw_mut(this_cpu.irqs_off()).update_userpage();
        branch::note_event_change(this_cpu, event);
    }

    /// Finds the image for the events that a transaction added; perf core's callback
    /// [`commit_txn`](crate::perf::Pmu::commit_txn).
    #[inline]
    pub(super) fn commit_txn(&self, this_cpu: &ExclusiveCpu) -> Result {
        let (slots, state) = (this_cpu.slots(), this_cpu.state());
        // Do not place the events again if the transaction added none: this happens if a software
        // event leads the group and the group's members on this PMU are disabled.
        let is_new = |event: &Event| event::counter(event).is_none();
        if state.in_transaction.get() && slots.iter().any(is_new) {
            // After most context switches the same events return to a CPU, and the old image fits.
            if !state.image_events.fit_again(slots) {
                self.place(this_cpu, slots.iter())?;
            }
        }
        state.in_transaction.set(false);
        Ok(())
    }

    /// Finds and stores the image of `events`, which must count together on the CPU. Fails with
    /// `EAGAIN` if there is none.
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

    /// Finds and stores the image of `events` with alternative codes. `why` is the reason why they
    /// cannot count together with the requested codes.
    #[cold] // Keeps 1.2 KiB off the stack of `place`, which needs 0.2 KiB without it.
    fn search<'a>(
        &self,
        this_cpu: &ExclusiveCpu,
        events: impl Iterator<Item = &'a Event> + Clone,
        why: Refusal,
    ) -> Result<(), Refusal> {
        let requests = Requests::new(events.clone().map(requests::request))?;
        let solution =
            self.model
                .solve_with_alternatives(requests.as_slice(), self.platform, why)?;
        set_image(this_cpu, events, solution.demands(), *solution);
        Ok(())
    }
}

/// Stores the image of `events`, which have these demands. Removes an event from its counter if the
/// image gives it a different one, which another event may be using.
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

// SPDX-License-Identifier: GPL-2.0

//! `event_init`: an event is opened. Is it for this PMU, and can the processor count it with its
//! group?

use super::{
    branch,
    ebb,
    event,
    refusal::Refusal,
    requests::{
        self,
        Requests, //
    },
    Driver, //
};
use crate::{
    isa207::{
        CacheEvent,
        Demand,
        GenericEvent, //
    },
    perf::{
        Attr,
        Event,
        EventType,
        NewEvent, //
    }, //
};
use core::iter;
use kernel::prelude::*;

impl Driver {
    /// See [`crate::perf::Pmu::event_init`].
    #[inline]
    pub(super) fn event_init(&self, event: &NewEvent<'_>) -> Result {
        self.check(event).map_err(|refusal| refusal.log(event))?;
        // What the event counts with is 0 so far, but for the period, which perf core has set.
        event::set_never_scheduled(event);

        // Last: perf core calls `destroy`, which gives the interrupt back, only for events that
        // were accepted.
        self.pmcs.get()
    }

    /// Checks an event with its group. Sets the event's code, what it asks of the PMU and, if it
    /// has a branch stack, the filter for that.
    #[inline]
    fn check(&self, event: &NewEvent<'_>) -> Result<(), Refusal> {
        let code = self.code(event.attr())?;
        event.hw_mut().set_code(code);
        ebb::check(event)?;
        branch::check(self, event)?;
        let demand = self.model.demand(&requests::request(event), self.machine)?;
        event::set_demand(event, &demand);
        if event::add_to_group(event, &demand) {
            return Ok(());
        }
        self.check_group(event)
    }

    /// Whether an event that has its code and demand can count with its group.
    #[cold]
    #[inline(never)] // `event_init` would save registers for it.
    fn check_group(&self, event: &NewEvent<'_>) -> Result<(), Refusal> {
        if Demand::together(with_members(event).map(event::demand)).is_ok() {
            return Ok(());
        }
        self.check_other_codes(event)
    }

    /// As [`Driver::check_group`], by other codes than those asked for.
    #[cold]
    fn check_other_codes(&self, event: &NewEvent<'_>) -> Result<(), Refusal> {
        let requests = Requests::new(with_members(event))?;
        self.model.solve(requests.as_slice(), self.machine)?;
        Ok(())
    }

    /// The event code for what user space asked for.
    #[inline]
    fn code(&self, attr: &Attr) -> Result<u64, Refusal> {
        let config = attr.config();
        match attr.event_type() {
            EventType::Hardware => GenericEvent::from_config(config)
                .and_then(|generic| self.model.generic_event(generic))
                .ok_or(Refusal::NoSuchGenericEvent),
            EventType::HwCache => {
                let cache = CacheEvent::from_config(config).ok_or(Refusal::InvalidCacheEvent)?;
                self.model
                    .cache_event(cache)
                    .ok_or(Refusal::NoSuchCacheEvent)
            }
            EventType::Raw => Ok(config),
            EventType::Other => Err(Refusal::OtherType),
        }
    }
}

/// The members that the event's group has so far and that count with it in any case, and the event.
/// A group counts only once its leader is enabled, so the leader takes part. A disabled sibling may
/// stay disabled while the others count.
#[inline]
fn with_members<'a>(event: &'a NewEvent<'_>) -> impl Iterator<Item = &'a Event> {
    let leader = event.leader();
    let takes_part =
        move |member: &&Event| leader.is_some_and(|leader| leader.is(member)) || !member.is_off();
    Iterator::chain(event.group().filter(takes_part), iter::once(&**event))
}

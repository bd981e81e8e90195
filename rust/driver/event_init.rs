// SPDX-License-Identifier: GPL-2.0

//! `event_init`: an event is opened. Is it for this PMU, and can the processor count it with its
//! group?

use super::event::{
    Event,
    EventData,
    NewEvent, //
};
use super::{
    branch,
    ebb,
    refusal::Refusal,
    requests::{
        self,
        Requests, //
    },
    Driver, //
};
use crate::{
    isa207::{
        self,
        CacheEvent,
        Demand,
        EventCode,
        GenericEvent,
        HardwareFilter, //
    },
    perf::{
        Attr,
        EventType, //
    }, //
};
use core::iter;
use kernel::prelude::*;

impl Driver {
    /// See [`crate::perf::Pmu::event_init`].
    pub(super) fn event_init(&self, event: &NewEvent<'_>) -> Result<KBox<EventData>> {
        let data = self.check(event).map_err(|refusal| refusal.log(event))?;
        let data = KBox::new(data, GFP_KERNEL)?;
        // Must be last: perf core calls `destroy`, which gives the interrupt back, only for events
        // that were accepted.
        self.reserve()?;
        Ok(data)
    }

    /// Checks an event with its group, and makes its data.
    fn check(&self, event: &NewEvent<'_>) -> Result<EventData, Refusal> {
        let code = self.code(event.attr())?;
        ebb::check(event, code)?;
        let branch_filter = branch::check(self, event)?;
        let request = requests::request_of(event, code, branch_filter);
        let demand = self.model.demand(&request, self.machine)?;
        let demands = members(event).map(|member| member.data().demand);
        if let Err(why) = Demand::together(Iterator::chain(demands, iter::once(demand))) {
            self.search_group(event, code, branch_filter, why)?;
        }
        Ok(EventData::new(event, code, demand, branch_filter))
    }

    /// Checks that an event can count with its group by alternative codes, as it cannot by those
    /// asked for, for the reason `why`.
    #[cold] // Takes 848 of the 1,088 bytes of stack that `event_init` took with it.
    fn search_group(
        &self,
        event: &NewEvent<'_>,
        code: EventCode,
        branch_filter: Option<HardwareFilter>,
        why: isa207::Refusal,
    ) -> Result<(), Refusal> {
        let request = requests::request_of(event, code, branch_filter);
        let requests = members(event).map(requests::request);
        let requests = Requests::new(Iterator::chain(requests, iter::once(request)))?;
        self.model
            .solve_by_other_codes(requests.as_slice(), self.machine, why)?;
        Ok(())
    }

    /// The event code for what user space asked for.
    fn code(&self, attr: &Attr) -> Result<EventCode, Refusal> {
        let config = attr.config();
        let code = match attr.event_type() {
            EventType::Hardware => GenericEvent::from_config(config)
                .and_then(|generic| self.model.generic_event(generic))
                .ok_or(Refusal::NoSuchGenericEvent)?,
            EventType::HwCache => {
                let cache = CacheEvent::from_config(config).ok_or(Refusal::InvalidCacheEvent)?;
                self.model
                    .cache_event(cache)
                    .ok_or(Refusal::NoSuchCacheEvent)?
            }
            EventType::Raw => config,
            EventType::Other => return Err(Refusal::OtherType),
        };
        Ok(EventCode(code))
    }
}

/// Returns the members that the event's group has so far and that count with it in any case. A
/// group counts only once its leader is enabled, so the leader takes part. A disabled sibling may
/// stay disabled while the others count.
fn members<'a>(event: &NewEvent<'a>) -> impl Iterator<Item = &'a Event> {
    let leader = event.leader();
    let takes_part =
        move |member: &&Event| leader.is_some_and(|leader| leader.is(member)) || !member.is_off();
    event.group().filter(takes_part)
}

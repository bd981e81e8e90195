// SPDX-License-Identifier: GPL-2.0

//! `event_init`: opens an event if it is for this PMU and the processor can count it with its
//! group.

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
    /// Accepts or refuses a new event; perf core's callback
    /// [`event_init`](crate::perf::Pmu::event_init).
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
        let demand = self.model.demand(&request, self.platform)?;
        // The parent's group was checked when it was opened. Since then it may have lost or enabled
        // an event, so that it cannot count any more. `fork` must not fail for that.
        if !event.is_inherited() {
            let demands = members(event).map(|member| member.data().demand);
            if let Err(why) = Demand::check_compatible(Iterator::chain(demands, iter::once(demand)))
            {
                self.search_group(event, code, branch_filter, why)?;
            }
        }
        Ok(EventData::new(event, code, demand, branch_filter))
    }

    /// Checks that an event can count with its group with alternative codes. `why` is the reason
    /// why the requested codes cannot.
    #[cold] // Keeps 848 bytes off the stack of `event_init`, which needs 240 without it.
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
            .solve_with_alternatives(requests.as_slice(), self.platform, why)?;
        Ok(())
    }

    /// Returns the event code for the attributes from user space.
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

/// Returns the events that are in the group so far and that always count together with the new
/// event. The leader is one of them, because a group counts only if its leader is enabled. A
/// disabled sibling is not, because it may stay disabled while the others count.
fn members<'a>(event: &NewEvent<'a>) -> impl Iterator<Item = &'a Event> {
    let leader = event.leader();
    let takes_part =
        move |member: &&Event| leader.is_some_and(|leader| leader.is(member)) || !member.is_off();
    event.group().filter(takes_part)
}

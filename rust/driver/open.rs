// SPDX-License-Identifier: GPL-2.0

//! Opening an event: is it ours, can the processor count it, can it with its group?

use super::{
    branch,
    ebb,
    refuse::Refusal,
    Driver, //
};
use crate::{
    isa207::{
        self,
        CacheEvent,
        Exclude,
        GenericEvent,
        Request,
        COUNTERS, //
    },
    perf::{
        Attr,
        Event,
        Kind,
        NewEvent, //
    },
    power::machine, //
};
use kernel::{
    prelude::*,
    sync::atomic::Relaxed, //
};

/// Events that are to count together, as the solver takes them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Requests {
    requests: [Request; COUNTERS],
    len: usize,
}

impl Requests {
    /// No events.
    pub(super) fn new() -> Self {
        Self {
            requests: [Request::default(); COUNTERS],
            len: 0,
        }
    }

    /// Adds an event. Fails when there are more than counters.
    pub(super) fn push(&mut self, event: &Event) -> Result<(), isa207::Refusal> {
        let free = self.requests.get_mut(self.len);
        *free.ok_or(isa207::Refusal::TooManyEvents)? = request(event);
        self.len += 1;
        Ok(())
    }

    /// The events.
    pub(super) fn as_slice(&self) -> &[Request] {
        self.requests.get(..self.len).unwrap_or(&[])
    }
}

/// What an opened event asks of the hardware.
fn request(event: &Event) -> Request {
    let attr = event.attr();
    Request {
        code: event.hw().code(),
        config1: attr.config1(),
        config2: attr.config2(),
        exclude: Exclude {
            user: attr.exclude_user(),
            kernel: attr.exclude_kernel(),
            // With nobody above the kernel, what it runs in is not another's.
            hv: attr.exclude_hv() && machine::in_partition(),
            idle: attr.exclude_idle(),
        },
        runlatch_may_differ: event.follows_task(),
        branch_filter_ifm: branch::hardware_filter(event).map(|filter| filter.ifm),
    }
}

impl Driver {
    /// See [`crate::perf::Pmu::event_init`].
    pub(super) fn open(&self, event: &NewEvent<'_>) -> Result {
        self.accept(event).map_err(|refusal| refusal.of(event))?;

        let hw = event.hw();
        hw.set_idx(event, 0);
        hw.set_last_period(event, hw.sample_period());
        // CAST: perf core refuses periods with the uppermost bit.
        hw.period_left().store(hw.sample_period() as i64, Relaxed);
        hw.prev_count().store(0, Relaxed);
        ebb::mark_new(event);

        // Last, as it is what `destroy` gives back.
        self.pmcs.get()
    }

    /// Checks an event and sets its code.
    fn accept(&self, event: &NewEvent<'_>) -> Result<(), Refusal> {
        let attr = event.attr();
        let code = self.code(attr)?;
        if attr.precise_ip() != 0 {
            return Err(Refusal::PreciseIp);
        }
        event.hw().set_code(event, code);
        ebb::check(event)?;

        let mut requests = Requests::new();
        for member in event.group() {
            // A disabled leader still decides for its group; a disabled sibling may stay so.
            let leads = event.leader().is_some_and(|leader| leader.is(member));
            if leads || !member.is_off() {
                requests.push(member)?;
            }
        }
        branch::check(self, event)?;
        requests.push(event)?;
        self.model.solve(requests.as_slice(), self.machine)?;
        Ok(())
    }

    /// The event code that stands for what user space asked for.
    fn code(&self, attr: &Attr) -> Result<u64, Refusal> {
        let config = attr.config();
        match attr.kind() {
            Kind::Hardware => GenericEvent::from_config(config)
                .and_then(|generic| self.model.generic_event(generic))
                .ok_or(Refusal::NoSuchGenericEvent),
            Kind::HwCache => {
                let cache = CacheEvent::from_config(config).ok_or(Refusal::CacheEventNonsense)?;
                self.model.cache_event(cache).ok_or(Refusal::NoSuchCacheEvent)
            }
            Kind::Raw => Ok(config),
            Kind::Other => Err(Refusal::OtherType),
        }
    }
}

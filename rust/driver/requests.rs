// SPDX-License-Identifier: GPL-2.0

//! Events as user space asked for them, for the solver of `isa207`: to work out what an event asks
//! of the PMU, and to look for other codes when a group cannot count by those asked for.

use super::event;
use crate::{
    isa207::{
        Exclude,
        Refusal,
        Request,
        COUNTERS, //
    },
    perf::Event,
    power::machine, //
};

/// Events that are to count together.
#[derive(Clone, Copy)]
pub(super) struct Requests {
    requests: [Request; COUNTERS],
    len: usize,
}

impl Requests {
    /// Those of `events`. Fails if there are more than counters.
    pub(super) fn new<'a>(events: impl Iterator<Item = &'a Event>) -> Result<Self, Refusal> {
        let mut this = Self {
            requests: [Request::default(); COUNTERS],
            len: 0,
        };
        for event in events {
            let free = this.requests.get_mut(this.len);
            *free.ok_or(Refusal::TooManyEvents)? = request(event);
            this.len += 1;
        }
        Ok(this)
    }

    /// The events, in their order.
    pub(super) fn as_slice(&self) -> &[Request] {
        self.requests.get(..self.len).unwrap_or(&[])
    }
}

/// An event as user space asked for it.
pub(super) fn request(event: &Event) -> Request {
    let attr = event.attr();
    let [config2, config3, config4] = attr.more_config();
    Request {
        code: event.hw().code(),
        config1: attr.config1(),
        config2: config2 | config3 | config4,
        exclude: Exclude {
            user: attr.exclude_user(),
            kernel: attr.exclude_kernel(),
            // On bare metal the kernel is the hypervisor: ignore exclude_hv.
            hv: attr.exclude_hv() && !machine::is_hypervisor(),
            idle: attr.exclude_idle(),
        },
        only_count_run: event.follows_task(),
        branch_filter_ifm: event::branch_filter(event).map(|filter| filter.ifm),
    }
}

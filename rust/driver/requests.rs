// SPDX-License-Identifier: GPL-2.0

//! Events as user space requested them, in the form that the solver of `isa207` takes. They serve
//! to compute an event's demand, and to search for alternative codes if a group cannot count with
//! the requested ones.

use super::event::Event;
use crate::{
    isa207::{
        EventCode,
        Exclude,
        HardwareFilter,
        Refusal,
        Request,
        COUNTERS, //
    },
    perf::PerfEvent,
    power::machine, //
};

/// A group of requests that must count together.
#[derive(Clone, Copy)]
pub(super) struct Requests {
    requests: [Request; COUNTERS],
    len: usize,
}

impl Requests {
    /// Collects requests. Fails if there are more requests than counters.
    pub(super) fn new(requests: impl Iterator<Item = Request>) -> Result<Self, Refusal> {
        let mut this = Self {
            requests: [Request::default(); COUNTERS],
            len: 0,
        };
        for request in requests {
            let free = this.requests.get_mut(this.len);
            *free.ok_or(Refusal::TooManyEvents)? = request;
            this.len += 1;
        }
        Ok(this)
    }

    /// Returns the requests in their order.
    pub(super) fn as_slice(&self) -> &[Request] {
        self.requests.get(..self.len).unwrap_or(&[])
    }
}

/// Returns an event as user space requested it.
pub(super) fn request(event: &Event) -> Request {
    request_of(event, event.data().code, event.data().branch_filter)
}

/// Returns an event as user space requested it, given the code and the filter that the driver
/// chose.
pub(super) fn request_of(
    event: &PerfEvent,
    code: EventCode,
    branch_filter: Option<HardwareFilter>,
) -> Request {
    let attr = event.attr();
    let [config2, config3, config4] = attr.more_config();
    Request {
        code: code.0,
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
        branch_filter_ifm: branch_filter.map(|filter| filter.ifm),
    }
}

// SPDX-License-Identifier: GPL-2.0

//! Events as the solver of `isa207` takes them: what each asks of the hardware.

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

    /// Adds an event. Fails if there are as many as counters already.
    pub(super) fn push(&mut self, event: &Event) -> Result<(), Refusal> {
        let free = self.requests.get_mut(self.len);
        *free.ok_or(Refusal::TooManyEvents)? = request(event);
        self.len += 1;
        Ok(())
    }

    /// The events, in the order in which they were added.
    pub(super) fn as_slice(&self) -> &[Request] {
        self.requests.get(..self.len).unwrap_or(&[])
    }
}

/// What an event asks of the hardware.
fn request(event: &Event) -> Request {
    let attr = event.attr();
    Request {
        code: event.hw().code(),
        config1: attr.config1(),
        config2: attr.config2(),
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

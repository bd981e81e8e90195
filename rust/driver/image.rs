// SPDX-License-Identifier: GPL-2.0

//! The image of a CPU's events: each event's counter, and the values of the control registers.

use crate::isa207::{
    Assignment,
    Mmcr,
    Platform,
    Pmcs, //
};

/// Counters and control registers for the events of a CPU.
#[derive(Clone, Copy, Default)]
pub(super) struct Image {
    /// The counter of each event, in the order of the slots, and the control registers.
    assignment: Assignment,
    /// Whether the events are an EBB group. Either all events are EBB events or none
    /// ([`Selector::Ebb`](crate::isa207::Selector::Ebb)).
    pub(super) is_ebb: bool,
}

impl Image {
    /// Makes the image of events with this assignment.
    pub(super) fn new(assignment: Assignment, is_ebb: bool) -> Self {
        Self { assignment, is_ebb }
    }

    /// Returns the counter of each event, in the order of the slots.
    pub(super) fn pmcs(&self) -> Pmcs {
        self.assignment.pmcs
    }

    /// Returns the control registers.
    pub(super) fn mmcr(&self) -> &Mmcr {
        &self.assignment.mmcr
    }

    /// Returns whether an event counts in the kernel or in a hypervisor.
    pub(super) fn counts_kernel(&self, platform: Platform) -> bool {
        !self.assignment.is_frozen_in_kernel(platform)
    }
}

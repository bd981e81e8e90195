// SPDX-License-Identifier: GPL-2.0

//! An event as perf's attributes request it, and the properties of the platform that affect it.

use super::codes::event_code::EventCode;

/// The contexts in which an event does not count (`attr.exclude_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exclude {
    /// Problem state (user space).
    pub user: bool,
    /// The kernel's state: privileged state, or hypervisor state on bare metal.
    pub kernel: bool,
    /// Hypervisor state. Ignored on bare metal, where the kernel is the hypervisor.
    pub hv: bool,
    /// The wait state (CTRL\[RUN\] off).
    pub idle: bool,
}

/// One event as user space requests it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The event code: `attr.config` of a raw event, or the code of a generic or cache event.
    pub code: u64,
    /// `attr.config1`
    pub config1: u64,
    /// The OR of `attr.config2` and its extensions, where no CPU has fields. Must be 0.
    pub config2: u64,
    /// `attr.exclude_*`
    pub exclude: Exclude,
    /// The event follows a task. It counts only while the run latch is on, so cycles and run cycles
    /// are the same, and so are instructions and run instructions: the in-tree driver's
    /// `PPMU_ONLY_COUNT_RUN`.
    pub only_count_run: bool,
    /// The BHRB filter (MMCRA\[IFM\]) for the event's branch stack, 0 (every branch) to 3; `None`
    /// for an event without a branch stack. If branch stacks want different filters, the BHRB
    /// records every branch, or the events conflict ([`Platform::strict_branch_filters`]).
    pub branch_filter_ifm: Option<u8>,
}

impl Request {
    /// Returns the event code as a typed value.
    pub const fn event_code(&self) -> EventCode {
        EventCode(self.code)
    }

    /// Returns the BHRB filter that the event wants; `None` if the event uses the BHRB neither as
    /// an EBB event nor for a branch stack.
    pub(crate) const fn branch_ifm(&self) -> Option<u8> {
        let code = self.event_code();
        if code.wants_bhrb() {
            // CAST: The field has two bits.
            Some(code.ifm() as u8)
        } else {
            self.branch_filter_ifm
        }
    }
}

/// Properties of the platform that affect how events can count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Platform {
    /// The kernel runs on bare metal, in hypervisor state (MSR\[HV\]=1). To exclude the kernel then
    /// means to freeze in hypervisor state, and there is no other hypervisor to exclude.
    pub hypervisor_mode: bool,
    /// Software does not filter branch stacks, so all that count at the same time must want the
    /// same hardware filter.
    pub strict_branch_filters: bool,
    /// There is no BHRB, or it cannot be used.
    pub without_bhrb: bool,
}

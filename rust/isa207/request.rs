// SPDX-License-Identifier: GPL-2.0

//! An event as perf's attributes ask for it, and what else decides how it can count.

use super::codes::event_code::EventCode;

/// The contexts in which an event does not count (`attr.exclude_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exclude {
    /// Problem state.
    pub user: bool,
    /// The state that the kernel runs in.
    pub kernel: bool,
    /// Hypervisor state. Ignored on bare metal, where the kernel is the hypervisor.
    pub hv: bool,
    /// The wait state (CTRL\[RUN\] off).
    pub idle: bool,
}

/// One event as user space asks for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The event code: `attr.config` of a raw event, or what a generic or cache event stands for.
    pub code: u64,
    /// `attr.config1`
    pub config1: u64,
    /// `attr.config2` and its extensions: bits that no CPU has a field for.
    pub config2: u64,
    /// `attr.exclude_*`
    pub exclude: Exclude,
    /// The event follows a task. So it counts only while the run latch is on, and cycles and run
    /// cycles (instructions likewise) are the same: the in-tree driver's `PPMU_ONLY_COUNT_RUN`.
    pub only_count_run: bool,
    /// For an event with a branch stack, the BHRB filter (MMCRA\[IFM\]) that it wants, 0 (every
    /// branch) to 3; `None` for any other event. If branch stacks want different ones, the BHRB
    /// records every branch, or they conflict ([`Machine::strict_branch_filters`]).
    pub branch_filter_ifm: Option<u8>,
}

impl Request {
    /// The event code as a typed value.
    pub const fn event_code(&self) -> EventCode {
        EventCode(self.code)
    }

    /// The BHRB filter that the event wants; `None` if it does not use the BHRB, neither as an
    /// EBB event nor for a branch stack.
    pub(crate) const fn branch_ifm(&self) -> Option<u8> {
        let code = self.event_code();
        if code.wants_bhrb() {
            // CAST: two bits.
            Some(code.ifm() as u8)
        } else {
            self.branch_filter_ifm
        }
    }
}

/// What decides besides the events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// The kernel runs on bare metal, in hypervisor state (MSR\[HV\]=1). Excluding the kernel
    /// then is to freeze in hypervisor state, and there is no other hypervisor to exclude.
    pub hypervisor_mode: bool,
    /// Software does not filter branch stacks, so all that count at a time must want the same
    /// hardware filter.
    pub strict_branch_filters: bool,
    /// There is no BHRB, or it cannot be used.
    pub without_bhrb: bool,
}

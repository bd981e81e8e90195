// SPDX-License-Identifier: GPL-2.0

//! Why an event is refused, and the errno that user space gets. No other file chooses an errno for
//! a refusal.
//!
//! Dynamic debug shows the reason of each refusal: `echo 'module ebb_pmu +p' >
//! /sys/kernel/debug/dynamic_debug/control`, then `dmesg`.

use crate::perf::PerfEvent;
use crate::{
    isa207,
    power::log, //
};
use kernel::prelude::*;

/// Why an event is refused.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refusal {
    /// `attr.type` belongs to another PMU.
    OtherType,
    /// The processor has no event for a generic hardware event.
    NoSuchGenericEvent,
    /// The cache event is meaningless, such as a write to the instruction cache.
    InvalidCacheEvent,
    /// The processor has no event for a cache event.
    NoSuchCacheEvent,
    /// A branch stack of calls that have not returned.
    BranchCallStack,
    /// A branch stack with event counts at each branch.
    BranchCounters,
    /// A branch stack filtered by transactions.
    BranchTransactions,
    /// A branch stack without any type of branch.
    BranchNoTypes,
    /// The leader is an EBB event and the member is not, or vice versa.
    EbbMixed,
    /// An EBB event that follows a CPU instead of a task.
    EbbWithoutTask,
    /// An EBB group whose leader is not pinned.
    EbbNotPinned,
    /// An EBB group whose leader is not exclusive.
    EbbNotExclusive,
    /// An EBB event with `attr.freq`.
    EbbFreq,
    /// An EBB event with `attr.inherit`.
    EbbInherit,
    /// An EBB event with a sample type.
    EbbSampleType,
    /// An EBB event with a sample period.
    EbbSamplePeriod,
    /// An EBB event with `attr.enable_on_exec`.
    EbbEnableOnExec,
    /// An EBB event with `attr.exclude_host`: the program that uses EBBs runs on the host.
    EbbExcludeHost,
    /// The processor cannot count the event, alone or with its group.
    Hardware(isa207::Refusal),
}

impl Refusal {
    /// Returns the error for user space.
    fn error(self) -> Error {
        match self {
            Self::OtherType => ENOENT,
            Self::NoSuchGenericEvent
            | Self::NoSuchCacheEvent
            | Self::BranchCallStack
            | Self::BranchCounters
            | Self::BranchTransactions
            | Self::BranchNoTypes
            | Self::Hardware(isa207::Refusal::NoBhrb | isa207::Refusal::NoHardwareBranchFilter) => {
                EOPNOTSUPP
            }
            _ => EINVAL,
        }
    }

    /// Returns the reason in words.
    fn reason(self) -> &'static str {
        match self {
            Self::OtherType => "the type is not hardware, cache or raw",
            Self::NoSuchGenericEvent => "the processor has no such generic event",
            Self::InvalidCacheEvent => "there is no such combination of cache, access and result",
            Self::NoSuchCacheEvent => "the processor has no such cache event",
            Self::BranchCallStack => "the hardware records branches, not the stack of calls",
            Self::BranchCounters => "the hardware counts no events at branches",
            Self::BranchTransactions => "the hardware cannot filter branches by transactions",
            Self::BranchNoTypes => "the branch stack names no type of branch",
            Self::EbbMixed => "leader and member of the group disagree on EBB",
            Self::EbbWithoutTask => "an EBB event must be attached to a task",
            Self::EbbNotPinned => "the leader of an EBB group must be pinned",
            Self::EbbNotExclusive => "the leader of an EBB group must be exclusive",
            Self::EbbFreq => "an EBB event takes no frequency",
            Self::EbbInherit => "an EBB event cannot be inherited",
            Self::EbbSampleType => "an EBB event takes no sample type",
            Self::EbbSamplePeriod => "an EBB event takes no sample period",
            Self::EbbEnableOnExec => "an EBB event cannot be enabled on exec",
            Self::EbbExcludeHost => "an EBB event cannot exclude the host",
            Self::Hardware(refusal) => refusal.reason(),
        }
    }

    /// Logs why `event` is refused, and returns the error for user space.
    pub(super) fn log(self, event: &PerfEvent) -> Error {
        let error = self.error();
        // perf core offers an event of another type to every PMU in turn, so do not log these.
        if !matches!(self, Self::OtherType) {
            log::refusal(event.attr().config(), error, self.reason());
        }
        error
    }
}

impl From<isa207::Refusal> for Refusal {
    fn from(refusal: isa207::Refusal) -> Self {
        Self::Hardware(refusal)
    }
}

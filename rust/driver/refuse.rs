// SPDX-License-Identifier: GPL-2.0

//! Why an event is refused, with the errno that user space gets: the one place that decides it.
//!
//! The reason can be read with dynamic debug: `echo 'module ebb_pmu +p' >
//! /sys/kernel/debug/dynamic_debug/control`, then `dmesg`.

use crate::{
    isa207,
    perf::Event,
    power::machine, //
};
use kernel::prelude::*;

/// Why an event is refused.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refusal {
    /// The event's type is another PMU's.
    OtherType,
    /// The processor has no event for a generic one.
    NoSuchGenericEvent,
    /// The cache event is nonsense, as a write to the instruction cache.
    CacheEventNonsense,
    /// The processor has no event for a cache event.
    NoSuchCacheEvent,
    /// A branch stack that is the stack of calls.
    BranchCallStack,
    /// A branch stack where there is no BHRB.
    BranchNoBhrb,
    /// A branch stack with counts of events.
    BranchCounters,
    /// A branch stack that tells transactions apart.
    BranchTransactions,
    /// A branch stack of no type of branch.
    BranchNoTypes,
    /// Samples with less skid than the hardware's are asked for.
    PreciseIp,
    /// Leader and member disagree on EBB.
    EbbMixed,
    /// An EBB event that follows a CPU.
    EbbWithoutTask,
    /// An EBB group whose leader is not pinned.
    EbbNotPinned,
    /// An EBB group whose leader is not exclusive.
    EbbNotExclusive,
    /// An EBB event with a frequency.
    EbbFreq,
    /// An EBB event that children are to inherit.
    EbbInherit,
    /// An EBB event with a sample type.
    EbbSampleType,
    /// An EBB event with a sample period.
    EbbSamplePeriod,
    /// An EBB event that exec is to enable.
    EbbEnableOnExec,
    /// The event or its group cannot be counted.
    Hardware(isa207::Refusal),
}

impl Refusal {
    /// What user space gets.
    fn error(self) -> Error {
        match self {
            Self::OtherType => ENOENT,
            Self::NoSuchGenericEvent
            | Self::NoSuchCacheEvent
            | Self::BranchCallStack
            | Self::BranchNoBhrb
            | Self::BranchCounters
            | Self::BranchTransactions
            | Self::BranchNoTypes
            | Self::PreciseIp
            | Self::Hardware(isa207::Refusal::NoHardwareBranchFilter) => EOPNOTSUPP,
            _ => EINVAL,
        }
    }

    /// A sentence for whoever debugs it.
    fn reason(self) -> &'static str {
        match self {
            Self::OtherType => "the type is not hardware, cache or raw",
            Self::NoSuchGenericEvent => "the processor has no such generic event",
            Self::CacheEventNonsense => "there is no such combination of cache, access and result",
            Self::NoSuchCacheEvent => "the processor has no such cache event",
            Self::BranchCallStack => "the hardware records branches, not the stack of calls",
            Self::BranchNoBhrb => "this emulator lacks the BHRB",
            Self::BranchCounters => "the hardware counts no events at branches",
            Self::BranchTransactions => "branches are not told apart by transactions",
            Self::BranchNoTypes => "the branch stack is to hold no type of branch",
            Self::PreciseIp => "samples of a chosen precision are not supported",
            Self::EbbMixed => "leader and member of the group disagree on EBB",
            Self::EbbWithoutTask => "an EBB event must be attached to a task",
            Self::EbbNotPinned => "the leader of an EBB group must be pinned",
            Self::EbbNotExclusive => "the leader of an EBB group must be exclusive",
            Self::EbbFreq => "an EBB event takes no frequency",
            Self::EbbInherit => "an EBB event cannot be inherited",
            Self::EbbSampleType => "an EBB event takes no sample type",
            Self::EbbSamplePeriod => "an EBB event takes no sample period",
            Self::EbbEnableOnExec => "an EBB event cannot be enabled on exec",
            Self::Hardware(refusal) => refusal.reason(),
        }
    }

    /// Refuses `event`: tells whoever listens, and returns the error for user space.
    pub(super) fn of(self, event: &Event) -> Error {
        let error = self.error();
        // Other types are asked of every PMU in turn, so that says nothing.
        if !matches!(self, Self::OtherType) {
            machine::log_refusal(event.attr().config(), error.to_errno(), self.reason());
        }
        error
    }
}

impl From<isa207::Refusal> for Refusal {
    fn from(refusal: isa207::Refusal) -> Self {
        Self::Hardware(refusal)
    }
}

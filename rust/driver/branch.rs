// SPDX-License-Identifier: GPL-2.0

//! Events with a branch stack: which of them are accepted, with which hardware filter, and when the
//! BHRB is cleared for them.
//!
//! An entry of the BHRB does not show which program the branch belongs to. So the BHRB is cleared
//! when another task is scheduled in ([`sched_task`]), and when an event with a branch stack is
//! added to a CPU, because the CPU may have had no such event before ([`note_event_change`]).
//!
//! # Limitations
//!
//! The BHRB of ISA v3.1 does not record branches of the kernel.

use super::event::{
    Event,
    NewEvent, //
};
use super::{
    cpu_state::{
        local_pmu,
        ExclusiveCpu,
        ThisCpu, //
    },
    event::is_ebb,
    refusal::Refusal,
    Driver, //
};
use crate::{
    isa207::{
        self,
        BranchTypes,
        HardwareFilter, //
    },
    perf::{
        BranchSample,
        BranchSampleType,
        SampleFormat, //
    },
    power::pmu::LocalPmu, //
};

/// Returns the types of branches that an event asks for.
pub(super) fn types(wanted: BranchSampleType) -> BranchTypes {
    BranchTypes {
        any: wanted.contains(BranchSample::Any),
        any_call: wanted.contains(BranchSample::AnyCall),
        any_return: wanted.contains(BranchSample::AnyReturn),
        indirect_call: wanted.contains(BranchSample::IndCall),
        conditional: wanted.contains(BranchSample::Cond),
        call: wanted.contains(BranchSample::Call),
        indirect_jump: wanted.contains(BranchSample::IndJump),
    }
}

/// Checks the branch stack that an event asks for, and returns the hardware filter for it; `None`
/// if the event has no branch stack.
pub(super) fn check(
    driver: &Driver,
    event: &NewEvent<'_>,
) -> Result<Option<HardwareFilter>, Refusal> {
    if !event.attr().samples(SampleFormat::BranchStack) {
        return Ok(None);
    }
    let wanted = event.attr().branch_sample_type();
    let types = types(wanted);
    let transactions = wanted.contains(BranchSample::AbortTx)
        || wanted.contains(BranchSample::InTx)
        || wanted.contains(BranchSample::NoTx);
    let refusals = [
        (
            wanted.contains(BranchSample::CallStack),
            Refusal::BranchCallStack,
        ),
        (
            wanted.contains(BranchSample::Counters),
            Refusal::BranchCounters,
        ),
        (transactions, Refusal::BranchTransactions),
        (types == BranchTypes::default(), Refusal::BranchNoTypes),
    ];
    if let Some(&(_, refusal)) = refusals.iter().find(|(applies, _)| *applies) {
        return Err(refusal);
    }
    let filter = if !driver.platform.strict_branch_filters {
        driver.model.branch_filter(types)
    } else if wanted.count_without_levels() == 1 {
        driver.model.strict_branch_filter(types)?
    } else {
        return Err(isa207::Refusal::NoHardwareBranchFilter.into());
    };
    Ok(Some(filter))
}

/// Notes that an event was added to this CPU or deleted, before the PMU is enabled for the
/// change. The owner of an event with a branch stack, and a program with EBBs, must not see
/// branches that were recorded earlier.
pub(super) fn note_event_change(this_cpu: &ExclusiveCpu, event: &Event) {
    if is_ebb(event) || event.attr().samples(SampleFormat::BranchStack) {
        this_cpu.state().stale_branches.set(true);
    }
}

/// Clears the BHRB. If a PMI interrupts this, it may still find the old entries: the PMU has the
/// events that these were recorded for. Or it finds that the count of dispatches has changed, and
/// makes no branch stack.
pub(super) fn clear_bhrb(this_cpu: &ThisCpu, local: &LocalPmu<'_>) {
    this_cpu.bhrb_dispatches.set(local.clear_bhrb());
}

/// Clears the BHRB when a task is scheduled in; perf core's callback
/// [`sched_task`](crate::perf::Pmu::sched_task).
pub(super) fn sched_task(this_cpu: &ExclusiveCpu, sched_in: bool) {
    if sched_in {
        clear_bhrb(this_cpu, &local_pmu(this_cpu.irqs_off()));
    }
}

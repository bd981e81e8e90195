// SPDX-License-Identifier: GPL-2.0

//! Event-based branches: the rules for EBB events.
//!
//! While an EBB group is on the PMU, the program owns PMC1 to PMC6 and the bits of MMCR0 and MMCR2
//! that problem state can write. The kernel only saves and restores them at context switches
//! (`enable.rs`). The kernel's architecture code switches BESCR, EBBHR and EBBRR.
//!
//! Power ISA, Book II, chapter "Event-Based Branch Facility";
//! `Documentation/arch/powerpc/pmu-ebb.rst` of the kernel.
//!
//! An alert that the program cannot take at once stays in MMCR0\[PMAO\], which is saved and
//! restored with the program's other bits.

use super::{
    event::{
        self,
        is_ebb,
        NewEvent, //
    },
    refusal::Refusal, //
};
use crate::{
    isa207::EventCode,
    perf::SampleType, //
};

/// Checks the rules for EBB events. The rules about scheduling apply to the leader, and so to the
/// whole group.
pub(super) fn check(event: &NewEvent<'_>, code: EventCode) -> Result<(), Refusal> {
    // A leader of another PMU, such as a software event, is not an EBB event.
    let leader_is_ebb = if event.leads() {
        code.is_ebb()
    } else {
        event.leader().is_some_and(is_ebb)
    };
    require(leader_is_ebb == code.is_ebb(), Refusal::EbbMixed)?;
    if !code.is_ebb() {
        return Ok(());
    }
    let attr = event.attr();
    let leader = event.leader().map_or(attr, |leader| leader.attr());
    require(event.follows_task(), Refusal::EbbWithoutTask)?;
    require(leader.pinned(), Refusal::EbbNotPinned)?;
    require(leader.exclusive(), Refusal::EbbNotExclusive)?;
    require(!attr.freq(), Refusal::EbbFreq)?;
    require(!attr.inherit(), Refusal::EbbInherit)?;
    let samples_nothing = attr.sample_type() == SampleType::empty();
    require(samples_nothing, Refusal::EbbSampleType)?;
    require(attr.sample_period() == 0, Refusal::EbbSamplePeriod)?;
    require(!attr.enable_on_exec(), Refusal::EbbEnableOnExec)?;
    require(!event::counts_nothing(event), Refusal::EbbExcludeHost)
}

/// Refuses an event that breaks a rule.
fn require(kept: bool, refusal: Refusal) -> Result<(), Refusal> {
    if kept {
        Ok(())
    } else {
        Err(refusal)
    }
}

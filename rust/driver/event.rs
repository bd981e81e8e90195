// SPDX-License-Identifier: GPL-2.0

//! What the driver keeps in an event, in `struct hw_perf_event`: the code, what it asks of the PMU,
//! the counter and the flags.

use crate::{
    isa207::{
        Demand,
        EventCode,
        GroupDemand,
        HardwareFilter,
        Pmc, //
    },
    perf::{
        Event,
        NewEvent,
        SampleFormat,
        ThisCpu, //
    }, //
};

/// Flag: neither the event nor another one of the group that it was opened in has been on a PMU
/// yet.
const NEVER_SCHEDULED: u32 = 1 << 0;
/// Flag: the period that runs is longer than the event asks for, see `hold_back.rs`.
const HELD: u32 = 1 << 1;
/// Flags: the BHRB filter (MMCRA\[IFM\]) for the event's branch stack, two bits.
const IFM: u32 = 0b11 << IFM_SHIFT;
const IFM_SHIFT: u32 = 8;
/// Flag: with that filter the BHRB records the branches that the event wants and no others.
const IFM_EXACT: u32 = 1 << 10;

/// Bits: the program that the event was last on a PMU for, by the lower bits of its number.
const PROGRAM: u32 = 0xfff << PROGRAM_SHIFT;
const PROGRAM_SHIFT: u32 = 16;

/// Whether an event asks for EBBs.
pub(super) fn is_ebb(event: &Event) -> bool {
    EventCode(event.hw().code()).is_ebb()
}

/// Whether an event counts nothing, and so is never started: it excludes the host. KVM gives each
/// guest that it runs in hypervisor mode registers of its own, so the host's events never count in
/// one (`switch_pmu_to_guest()` in `arch/powerpc/kvm/book3s_hv_p9_perf.c`).
pub(super) fn counts_nothing(event: &Event) -> bool {
    event.attr().exclude_host()
}

/// The counter that an event is on: 0 for PMC1, as the functions of `power::pmu` number them.
pub(super) fn counter(event: &Event) -> Option<usize> {
    // CAST: One of six counters.
    event.hw().idx().checked_sub(1).map(|index| index as usize)
}

/// The same counter, as `isa207` names it.
#[inline]
pub(super) fn pmc(event: &Event) -> Option<Pmc> {
    Pmc::from_number(event.hw().idx().into())
}

/// What the event asks of the PMU, as [`set_demand`] was told.
#[inline]
pub(super) fn demand(event: &Event) -> Demand {
    Demand::from_words(event.hw().words())
}

/// Keeps what an event that is being opened asks of the PMU.
pub(super) fn set_demand(event: &NewEvent<'_>, demand: &Demand) {
    event.set_words(demand.to_words());
}

/// Adds what an event that is being opened asks for to what its group does. Returns whether it can
/// count with all that were ever opened in the group, and so with any of them. If it cannot, it may
/// count with those that are there: some are closed, or were refused after this.
#[inline]
pub(super) fn add_to_group(event: &NewEvent<'_>, demand: &Demand) -> bool {
    let alone = GroupDemand::of(demand);
    // The event leads a group of its own once its leader is closed.
    event.set_group_words(alone.to_words());
    if event.leads() {
        return alone.holds_for_any();
    }
    let others = event.leader_words().map(GroupDemand::from_words);
    let all = others.and_then(|others| others.with(demand));
    event.set_leader_words(all.unwrap_or(GroupDemand::UNKNOWN).to_words());
    all.is_some_and(|all| all.holds_for_any())
}

/// Flags an event that is being opened as never scheduled, unless its group has been on a PMU.
pub(super) fn set_never_scheduled(event: &NewEvent<'_>) {
    let leads = |leader: &Event| leader.is(event);
    if event
        .leader()
        .is_none_or(|leader| leads(leader) || is_never_scheduled(leader))
    {
        event
            .hw_mut()
            .change_flags(NEVER_SCHEDULED, NEVER_SCHEDULED);
    }
}

/// Clears the flag as the event's group gets on this CPU's PMU.
pub(super) fn clear_never_scheduled<S>(this_cpu: &ThisCpu<S>, event: &Event) {
    let hw = event.hw_mut(this_cpu.irqs_off());
    hw.change_flags(NEVER_SCHEDULED, 0);
}

/// Whether neither the event nor another one of its group has been on a PMU yet.
pub(super) fn is_never_scheduled(event: &Event) -> bool {
    event.hw().flags() & NEVER_SCHEDULED != 0
}

/// Flags an event that is held back, or is no more.
pub(super) fn set_held<S>(this_cpu: &ThisCpu<S>, event: &Event, held: bool) {
    let flag = if held { HELD } else { 0 };
    event.hw_mut(this_cpu.irqs_off()).change_flags(HELD, flag);
}

/// Whether the period that runs is longer than the event asks for, and samples are lost.
pub(super) fn is_held(event: &Event) -> bool {
    event.hw().flags() & HELD != 0
}

/// Gives an event to the program of this number, which had it on a PMU before if this is `false`.
pub(super) fn is_new_to<S>(this_cpu: &ThisCpu<S>, event: &Event, program: u64) -> bool {
    // CAST: The lower bits.
    let program = (program as u32) << PROGRAM_SHIFT & PROGRAM;
    let hw = event.hw_mut(this_cpu.irqs_off());
    hw.change_flags(PROGRAM, program) & PROGRAM != program
}

/// Whether an event was last on a PMU for the program of this number.
#[inline]
pub(super) fn is_of(event: &Event, program: u64) -> bool {
    // CAST: The lower bits.
    event.hw().flags() & PROGRAM == (program as u32) << PROGRAM_SHIFT & PROGRAM
}

/// Sets the BHRB filter for the branch stack of an event that is being opened.
pub(super) fn set_branch_filter(event: &NewEvent<'_>, filter: HardwareFilter) {
    let ifm = u32::from(filter.ifm) << IFM_SHIFT & IFM;
    let exact = if filter.exact { IFM_EXACT } else { 0 };
    event.hw_mut().change_flags(IFM | IFM_EXACT, ifm | exact);
}

/// The BHRB filter for the event's branch stack; `None` for an event without one.
pub(super) fn branch_filter(event: &Event) -> Option<HardwareFilter> {
    let flags = event.hw().flags();
    event
        .attr()
        .samples(SampleFormat::BranchStack)
        .then_some(HardwareFilter {
            // CAST: Two bits.
            ifm: ((flags & IFM) >> IFM_SHIFT) as u8,
            exact: flags & IFM_EXACT != 0,
        })
}

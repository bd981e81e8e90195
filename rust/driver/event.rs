// SPDX-License-Identifier: GPL-2.0

//! The driver's data of an event: the code, its demand on the PMU, and what changes while
//! the event is open.

use crate::{
    isa207::{
        Demand,
        EventCode,
        HardwareFilter, //
    },
    perf::{
        self,
        IrqsOff,
        PerfEvent,
        PmiCell, //
    }, //
};

/// An event of this driver.
pub(super) type Event = perf::Event<EventData>;

/// An event that is being opened for this driver.
pub(super) type NewEvent<'a> = perf::NewEvent<'a, EventData>;

/// The driver's data of an event.
///
/// The CPU that has the event writes the fields that change, except for `never_scheduled`, which
/// the CPU of another event of the group writes too.
pub(crate) struct EventData {
    /// The code that stands for what user space asked for.
    pub(super) code: EventCode,
    /// The event's demand on the PMU if it counts by that code.
    pub(super) demand: Demand,
    /// The BHRB filter for the event's branch stack, if it has one.
    pub(super) branch_filter: Option<HardwareFilter>,
    /// Neither the event nor another one of the group that it was opened in has been on a PMU yet.
    pub(super) never_scheduled: PmiCell<bool>,
    /// The current period is longer than the event asks for, see `throttle.rs`.
    pub(super) is_throttled: PmiCell<bool>,
    /// The time of the last overflow, in the unit of `throttle.rs`.
    pub(super) overflow_time: PmiCell<u32>,
    /// The program for which the event was last on a PMU, by the number of programs that its task
    /// executed before; 0 at first.
    execs: PmiCell<u64>,
}

impl EventData {
    /// Makes the data of an event that is being opened.
    pub(super) fn new(
        event: &NewEvent<'_>,
        code: EventCode,
        demand: Demand,
        branch_filter: Option<HardwareFilter>,
    ) -> Self {
        let is_new = |leader: &Event| leader.data().never_scheduled.get();
        Self {
            code,
            demand,
            branch_filter,
            never_scheduled: PmiCell::new(event.leader().is_none_or(is_new)),
            is_throttled: PmiCell::default(),
            overflow_time: PmiCell::default(),
            execs: PmiCell::default(),
        }
    }
}

/// Whether an event asks for EBBs.
pub(super) fn is_ebb(event: &Event) -> bool {
    event.data().code.is_ebb()
}

/// Whether an event counts nothing, and so is never started: it excludes the host. KVM gives each
/// guest that it runs in hypervisor mode registers of its own, so the host's events never count in
/// one (`switch_pmu_to_guest()` in `arch/powerpc/kvm/book3s_hv_p9_perf.c`).
pub(super) fn counts_nothing(event: &PerfEvent) -> bool {
    event.attr().exclude_host()
}

/// The counter that an event is on: 0 for PMC1, as the functions of `power::pmu` number them.
pub(super) fn counter(event: &Event) -> Option<usize> {
    // CAST: One of six counters.
    event.hw().idx().checked_sub(1).map(|index| index as usize)
}

/// Gives an event of the current task to the program of this number. Returns whether that program
/// did not have it before.
pub(super) fn set_program(_irqs_off: &IrqsOff<'_>, event: &Event, execs: u64) -> bool {
    event.data().execs.replace(execs) != execs
}

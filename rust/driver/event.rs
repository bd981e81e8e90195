// SPDX-License-Identifier: GPL-2.0

//! The driver's data of an event: the code, its demand on the PMU, and the fields that change while
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
/// The CPU that has the event writes the fields that change. The exception is `never_scheduled`:
/// the CPU of another event of the group writes it, too.
pub(crate) struct EventData {
    /// The code that user space requested.
    pub(super) code: EventCode,
    /// The event's demand on the PMU with that code.
    pub(super) demand: Demand,
    /// The BHRB filter for the event's branch stack, if it has one.
    pub(super) branch_filter: Option<HardwareFilter>,
    /// Whether neither the event nor any other event of the group in which it was opened has been
    /// on a PMU yet.
    pub(super) never_scheduled: PmiCell<bool>,
    /// Whether the current period is longer than the event's own, see `throttle.rs`. Never set for
    /// an event with a frequency, whose owner did not ask for a certain period.
    pub(super) is_throttled: PmiCell<bool>,
    /// The time of the last overflow while PMIs took too much time, in the unit of `throttle.rs`.
    pub(super) overflow_time: PmiCell<u32>,
    /// The program for which the event was last on a PMU: the number of programs that its task had
    /// executed before that program. 0 at first.
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

/// Returns whether an event asks for EBBs.
pub(super) fn is_ebb(event: &Event) -> bool {
    event.data().code.is_ebb()
}

/// Returns whether an event never counts and is never started: it excludes the host. KVM loads a
/// guest's own PMU registers for each guest that it runs in hypervisor mode, so the host's events
/// never count in a guest (`switch_pmu_to_guest()` in `arch/powerpc/kvm/book3s_hv_p9_perf.c`).
pub(super) fn counts_nothing(event: &PerfEvent) -> bool {
    event.attr().exclude_host()
}

/// Returns the index of an event's counter: 0 for PMC1, as in `power::pmu`.
pub(super) fn counter(event: &Event) -> Option<usize> {
    // CAST: `idx` is at most 6.
    event.hw().idx().checked_sub(1).map(|index| index as usize)
}

/// Records the program `execs` as the owner of an event of the current task. Returns whether the
/// owner changed.
pub(super) fn set_program(_irqs_off: &IrqsOff<'_>, event: &Event, execs: u64) -> bool {
    event.data().execs.replace(execs) != execs
}

// SPDX-License-Identifier: GPL-2.0

//! What the driver keeps for each CPU.
//!
//! The state is made of `Cell`s and has no lock. It is changed only on its own CPU and only between
//! `pmu_disable` and `pmu_enable`, when the PMU is frozen and raises no PMI. A PMI that was raised
//! before and is delivered in that time finds `disabled` set, and its handler uses nothing else. PMIs
//! do not nest.
//!
//! `alert` is the exception, see `emulator/alert_state.rs`.

use super::{
    emulator::alert_state::AlertState,
    solved_groups::SolvedGroups, //
};
use crate::{
    isa207::{
        Assignment,
        Mmcr, //
    },
    perf,
    power::pmu::LocalPmu, //
};
use core::cell::Cell;

/// The driver's state of one CPU.
#[derive(Default)]
pub(crate) struct CpuState {
    /// The PMU is disabled: frozen by `pmu_disable` until the next `pmu_enable`.
    pub(super) disabled: Cell<bool>,
    /// The PMU's registers have been turned on since the CPU came up.
    pub(super) turned_on: Cell<bool>,
    /// A transaction that adds events is open.
    pub(super) in_transaction: Cell<bool>,
    /// Events were added or deleted since the PMU was last programmed.
    pub(super) events_changed: Cell<bool>,
    /// An event with a branch stack was added since the PMU was last programmed. The BHRB may hold
    /// branches that its owner must not see.
    pub(super) stale_branches: Cell<bool>,
    /// Which counter each event of the slots gets; `None` when the slots changed since it was found.
    pub(super) assignment: Cell<Option<Assignment>>,
    /// The assignments that were found last.
    pub(super) solved_groups: SolvedGroups,
    /// The control registers that the PMU was last programmed with.
    pub(super) mmcr: Cell<Mmcr>,
    /// The PMU was last programmed with an EBB group.
    pub(super) ebb: Cell<bool>,
    /// The alert of the program whose events are on the PMU, for an emulator.
    pub(super) alert: AlertState,
}

/// The CPU that a callback runs on, with the driver's state.
pub(super) type ThisCpu<'a> = perf::ThisCpu<'a, CpuState>;

/// The PMU of `_this_cpu`.
pub(super) fn local_pmu(_this_cpu: &ThisCpu<'_>) -> LocalPmu {
    // SAFETY: Interrupts are off while a `ThisCpu` lives, by its type invariants. Callers keep theirs
    // for longer than the `LocalPmu`.
    unsafe { LocalPmu::new() }
}

// SPDX-License-Identifier: GPL-2.0

//! What the driver keeps for each CPU.
//!
//! The state has no lock. Code that schedules events has a CPU's [`ExclusiveState`] to itself, so
//! `Cell`s do. It shares the [`SharedState`] with the PMI handler, which may come in the middle:
//!
//! - the handler does not use `mmcr0`, `ifm` and `hypervisor_branches` while `disabled` is set, and
//!   they are written only then. A disabled PMU is frozen and raises no PMI, but one raised before
//!   may be delivered;
//! - `bhrb_dispatches` is also written by the PMI handler and `execve`. An older number than the
//!   BHRB's costs a branch stack;
//! - `alert` is also written by the PMI handler and, on an emulator, by the timer. Other code
//!   writes it only while the PMU is disabled or PM interrupts are masked. PMIs do not nest;
//! - the PMI handler alone writes `pmi_time`. Other code reads it while the PMU is disabled or PM
//!   interrupts are masked.

use super::{
    emulator::alert_state::AlertState,
    hold_back::PmiTime,
    left::Left,
    solved_groups::{
        Solved,
        SolvedGroups, //
    }, //
};
use crate::{
    isa207::{
        Assignment,
        Mmcr, //
    },
    perf::{
        self,
        Event,
        IrqsOff,
        PmiCell, //
    },
    power::pmu::LocalPmu, //
};
use core::cell::Cell;

/// The state of one CPU that PMIs use too.
#[derive(Default)]
pub(crate) struct SharedState {
    /// The PMU is disabled: frozen by `pmu_disable` until the next `pmu_enable`.
    pub(super) disabled: PmiCell<bool>,
    /// MMCR0 with which the PMU goes on after a PMI, as it was last programmed.
    pub(super) mmcr0: PmiCell<u64>,
    /// MMCRA\[IFM\] as the PMU was last programmed: the filter of the BHRB.
    pub(super) ifm: PmiCell<u8>,
    /// The BHRB may hold branches of hypervisor state, as the PMU was last programmed.
    pub(super) hypervisor_branches: PmiCell<bool>,
    /// The count of dispatches when the BHRB was last cleared, see `branch::clear_bhrb`.
    pub(super) bhrb_dispatches: PmiCell<u32>,
    /// The alert of the program whose events are on the PMU, for an emulator.
    pub(super) alert: AlertState,
    /// The time that PMIs take.
    pub(super) pmi_time: PmiTime,
}

/// The state of one CPU that only code that schedules events uses.
#[derive(Default)]
pub(crate) struct ExclusiveState {
    /// The PMU's registers have been turned on since the CPU came up.
    pub(super) turned_on: Cell<bool>,
    /// The PMU's registers do not read as they were written: the hypervisor gives this partition no
    /// PMU, or the processor lacks bits. So their values do not show whether the PMU was lost.
    pub(super) forgets_writes: Cell<bool>,
    /// A transaction that adds events is open.
    pub(super) in_transaction: Cell<bool>,
    /// Events were added or deleted since the PMU was last programmed.
    pub(super) events_changed: Cell<bool>,
    /// The number of events in the slots that are on no counter yet.
    pub(super) unplaced: Cell<usize>,
    /// The solution for the events in the slots, if it is known.
    pub(super) solved: Cell<Option<Solved>>,
    /// What the PMU holds of events that left it.
    pub(super) left: Left,
    /// What the kernel was told last of prompt PMIs.
    pub(super) prompt: Cell<bool>,
    /// An event with a branch stack was added since the PMU was last programmed. The BHRB may hold
    /// branches that its owner must not see.
    pub(super) stale_branches: Cell<bool>,
    /// The assignments that were found last.
    pub(super) solved_groups: SolvedGroups,
    /// The control registers that the PMU was last programmed with.
    pub(super) mmcr: Cell<Mmcr>,
    /// `mmcr` is by the codes that the events asked for.
    pub(super) as_asked: Cell<bool>,
    /// `mmcr` is of a [separable](Assignment::is_separable) assignment.
    pub(super) separable: Cell<bool>,
    /// Counters may count in the kernel or in a hypervisor.
    pub(super) counts_kernel: Cell<bool>,
    /// MMCR0 with which the PMU starts, without the bits that belong to a program.
    pub(super) start_mmcr0: Cell<u64>,
    /// MMCRA for the frozen PMU.
    pub(super) idle_mmcra: Cell<u64>,
    /// The PMU was last programmed with an EBB group.
    pub(super) ebb: Cell<bool>,
    /// The counters, a bit each, that no event is on. A program with an EBB group writes them too.
    pub(super) unused_counters: Cell<u8>,
}

impl ExclusiveState {
    /// Notes that events are added or deleted.
    pub(super) fn set_changed(&self) {
        self.events_changed.set(true);
        self.solved.set(None);
    }

    /// Notes that the PMU is programmed with the events in the slots.
    #[inline]
    pub(super) fn set_unchanged(&self) {
        self.events_changed.set(false);
        self.unplaced.set(0);
    }

    /// Notes that so many more events are on no counter yet.
    #[inline]
    pub(super) fn add_unplaced(&self, more: isize) {
        let unplaced = self.unplaced.get();
        self.unplaced.set(unplaced.wrapping_add_signed(more));
    }

    /// Keeps the solution for these `len` events. The PMU may have been programmed with the one
    /// that it replaces.
    pub(super) fn store<'a>(
        &self,
        len: usize,
        events: impl Iterator<Item = &'a Event> + Clone,
        assignment: Assignment,
        as_asked: bool,
    ) -> Option<Solved> {
        let solved = self.solved_groups.store(len, events, assignment, as_asked);
        self.left.replaced(solved);
        solved
    }
}

/// The state of all CPUs.
pub(crate) type CpuContexts = perf::CpuContexts<SharedState, ExclusiveState>;

/// The CPU that code runs on, with the state that it shares with PMIs.
pub(super) type ThisCpu = perf::ThisCpu<SharedState>;

/// The CPU that code runs on, for code that schedules events.
pub(super) type ExclusiveCpu = perf::ExclusiveCpu<SharedState, ExclusiveState>;

/// The PMU of the CPU that code with interrupts off runs on.
#[inline(always)]
pub(super) fn local_pmu<'a>(_irqs_off: &'a IrqsOff<'_>) -> LocalPmu<'a> {
    // SAFETY: Interrupts are off while an `IrqsOff` lives, by its type invariants, and the result
    // borrows this one.
    unsafe { LocalPmu::new() }
}

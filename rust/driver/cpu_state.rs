// SPDX-License-Identifier: GPL-2.0

//! The driver's state of each CPU.
//!
//! The state has no lock. Code that schedules events is the only user of a CPU's
//! [`ExclusiveState`], so `Cell`s suffice. It shares the [`SharedState`] with the PMI handler,
//! which may interrupt it:
//!
//!
//! - The handler uses `mmcr0`, `ifm` and `hypervisor_branches` only while `enabled` is set, and
//!   other code writes them only while it is clear. `pmu_disable` clears `enabled` before it
//!   freezes the PMU. A PMI raised in between, or delivered after the freeze, finds `enabled` clear
//!   and drops its alert; `pmu_enable` makes up for it.
//! - The PMI handler and `execve` write `bhrb_dispatches`, too. If its number is older than the
//!   BHRB's, a sample has no branch stack.
//! - The PMI handler and, on an emulator, the timer write `alert`, too. Other code writes it only
//!   while the PMU is disabled or PM interrupts are masked. PMIs do not nest.
//! - Only the PMI handler writes `pmi_time`. Other code reads it while the PMU is disabled or PM
//!   interrupts are masked.

use super::{
    emulator::alert_state::AlertState,
    event::EventData,
    image::Image,
    pmi_time::PmiTime, //
};
use crate::{
    isa207::{
        Demand,
        COUNTERS, //
    },
    perf::{
        self,
        IrqsOff,
        PmiCell, //
    },
    power::{
        cache::PmuCache,
        pmu::LocalPmu, //
    }, //
};
use core::cell::Cell;

/// The state of one CPU that the PMI handler also uses.
#[derive(Default)]
pub(crate) struct SharedState {
    /// The PMU runs: `pmu_enable` started it with at least one event, and `pmu_disable` did not
    /// freeze it since then.
    pub(super) enabled: PmiCell<bool>,
    /// The value of MMCR0 with which the PMU continues after a PMI. It denies programs access.
    pub(super) mmcr0: PmiCell<u64>,
    /// MMCRA\[IFM\] that was written last: the filter of the BHRB.
    pub(super) ifm: PmiCell<u8>,
    /// Whether the BHRB may hold branches of hypervisor state, according to the last written image.
    pub(super) hypervisor_branches: PmiCell<bool>,
    /// The count of dispatches when the BHRB was last cleared, see `branch::clear_bhrb`.
    pub(super) bhrb_dispatches: PmiCell<u32>,
    /// The alert of the program whose events are on the PMU, for an emulator.
    pub(super) alert: AlertState,
    /// The time that the handling of PMIs takes.
    pub(super) pmi_time: PmiTime,
}

/// The events of an image, in the order of the slots: their ids, and their demands with the codes
/// that the image counts them with.
#[derive(Default)]
pub(crate) struct ImageEvents {
    events: [Cell<(u64, Demand)>; COUNTERS],
    len: Cell<usize>,
}

impl ImageEvents {
    /// Stores `event` at `index`, and makes it the last one.
    pub(super) fn put(&self, index: usize, event: (u64, Demand)) {
        if let Some(cell) = self.events.get(index) {
            cell.set(event);
            self.len.set(index + 1);
        }
    }

    /// Returns the events.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, Demand)> + Clone + use<'_> {
        self.events.iter().map(Cell::get).take(self.len.get())
    }

    /// Returns whether these events are exactly the `events` in the slots.
    pub(super) fn are(&self, events: &Slots) -> bool {
        events.len() == self.len.get() && self.start_with(events)
    }

    /// Returns whether the `events` in the slots are the first of these events and can count
    /// without the others. They cannot if they depend on one of the others (POWER9's rule about
    /// PMC4).
    pub(super) fn fit_again(&self, events: &Slots) -> bool {
        let demands = self.iter().take(events.len()).map(|(_, demand)| demand);
        self.start_with(events) && Demand::check_compatible(demands).is_ok()
    }

    fn start_with(&self, events: &Slots) -> bool {
        let mut pairs = self.iter().zip(events.iter());
        events.len() <= self.len.get() && pairs.all(|((id, _), event)| id == event.id())
    }
}

/// The state of one CPU that only code that schedules events uses.
#[derive(Default)]
pub(crate) struct ExclusiveState {
    /// A transaction that adds events is open.
    pub(super) in_transaction: Cell<bool>,
    /// The image of the events in the slots, or of those that were in the slots before.
    pub(super) image: Cell<Image>,
    /// The events of the image.
    pub(super) image_events: ImageEvents,
    /// The values that the PMU's registers are known to hold.
    pub(super) cache: PmuCache,
    /// Whether the kernel currently delivers prompt PMIs on this CPU.
    pub(super) prompt_pmis: Cell<bool>,
    /// Whether the BHRB may hold branches that the owner of an added event must not see, or
    /// branches of a removed event.
    pub(super) stale_branches: Cell<bool>,
}

/// The events on a CPU's PMU.
type Slots = perf::Slots<EventData>;

/// The state of all CPUs.
pub(crate) type CpuContexts = perf::CpuContexts<SharedState, ExclusiveState, EventData>;

/// The current CPU, with the state that it shares with PMIs.
pub(super) type ThisCpu = perf::ThisCpu<SharedState, EventData>;

/// The current CPU, for code that schedules events.
pub(super) type ExclusiveCpu = perf::ExclusiveCpu<SharedState, ExclusiveState, EventData>;

/// Returns the PMU of the current CPU, which cannot change because interrupts are off.
pub(super) fn local_pmu<'a>(_irqs_off: &'a IrqsOff<'_>) -> LocalPmu<'a> {
    // SAFETY: Interrupts are off while an `IrqsOff` lives, by its type invariants, and the result
    // borrows `_irqs_off`.
    unsafe { LocalPmu::new() }
}

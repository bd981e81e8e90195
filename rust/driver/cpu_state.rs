// SPDX-License-Identifier: GPL-2.0

//! What the driver keeps for each CPU.
//!
//! The state has no lock. Code that schedules events has a CPU's [`ExclusiveState`] to itself, so
//! `Cell`s do. It shares the [`SharedState`] with the PMI handler, which may come in the middle:
//!
//! - the handler uses `mmcr0`, `ifm` and `hypervisor_branches` only while `enabled` is set, and
//!   they
//!   are written only while it is not. A disabled PMU is frozen and raises no PMI, but one raised
//!   before may be delivered;
//! - `bhrb_dispatches` is also written by the PMI handler and `execve`. An older number than the
//!   BHRB's costs a branch stack;
//! - `alert` is also written by the PMI handler and, on an emulator, by the timer. Other code
//!   writes it only while the PMU is disabled or PM interrupts are masked. PMIs do not nest;
//! - the PMI handler alone writes `pmi_time`. Other code reads it while the PMU is disabled or PM
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

/// The state of one CPU that PMIs use too.
#[derive(Default)]
pub(crate) struct SharedState {
    /// The PMU runs: `pmu_enable` has started it with some event, and `pmu_disable` has not frozen
    /// it since.
    pub(super) enabled: PmiCell<bool>,
    /// MMCR0 with which the PMU continues after a PMI, closed to programs.
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

/// The events that an image is of, in the order of the slots: their numbers, and their demands with
/// the codes that count them.
#[derive(Default)]
pub(crate) struct ImageEvents {
    events: [Cell<(u64, Demand)>; COUNTERS],
    len: Cell<usize>,
}

impl ImageEvents {
    /// Stores `event` at `index`, as the last one.
    pub(super) fn put(&self, index: usize, event: (u64, Demand)) {
        if let Some(place) = self.events.get(index) {
            place.set(event);
            self.len.set(index + 1);
        }
    }

    /// Returns the events.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, Demand)> + Clone + use<'_> {
        self.events.iter().map(Cell::get).take(self.len.get())
    }

    /// Whether these are the `events` in the slots.
    pub(super) fn are(&self, events: &Slots) -> bool {
        events.len() == self.len.get() && self.start_with(events)
    }

    /// Whether the `events` in the slots are the first of these, and fit. They do not if they
    /// depend on an event that is not among them (POWER9's rule about PMC4).
    pub(super) fn fit_again(&self, events: &Slots) -> bool {
        let demands = self.iter().take(events.len()).map(|(_, demand)| demand);
        self.start_with(events) && Demand::together(demands).is_ok()
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
    /// The image of the events in the slots, or of those that were there before.
    pub(super) image: Cell<Image>,
    /// The events that the image is of.
    pub(super) image_events: ImageEvents,
    /// The values that the PMU's registers are known to hold.
    pub(super) cache: PmuCache,
    /// The last setting of prompt PMIs in the kernel.
    pub(super) prompt: Cell<bool>,
    /// The BHRB may hold branches that the owner of an event that came must not see, or those of
    /// one that left.
    pub(super) stale_branches: Cell<bool>,
}

/// The events on a CPU's PMU.
type Slots = perf::Slots<EventData>;

/// The state of all CPUs.
pub(crate) type CpuContexts = perf::CpuContexts<SharedState, ExclusiveState, EventData>;

/// The CPU that code runs on, with the state that it shares with PMIs.
pub(super) type ThisCpu = perf::ThisCpu<SharedState, EventData>;

/// The CPU that code runs on, for code that schedules events.
pub(super) type ExclusiveCpu = perf::ExclusiveCpu<SharedState, ExclusiveState, EventData>;

/// The PMU of the CPU that code with interrupts off runs on.
pub(super) fn local_pmu<'a>(_irqs_off: &'a IrqsOff<'_>) -> LocalPmu<'a> {
    // SAFETY: Interrupts are off while an `IrqsOff` lives, by its type invariants, and the result
    // borrows this one.
    unsafe { LocalPmu::new() }
}

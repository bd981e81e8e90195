// SPDX-License-Identifier: GPL-2.0

//! What a frozen PMU still holds of events that left it.
//!
//! Mostly a task comes back to the PMU that it left, with the same events, and nobody has
//! programmed it meanwhile. Then `resume.rs` writes only what differs from what is left.
//!
//! Nobody sees what is left. While the PMU is frozen programs have no access (MMCR0\[PMCC\]), and
//! who programs it for other events overwrites or clears all that these could see. A hypervisor
//! preserves the registers (`LocalPmu::make_usable`); where one does not, `Driver::is_intact` sees
//! it. On bare metal, where idle states lose them, nothing counts as left.

use super::{
    cpu_state::ExclusiveCpu,
    event::{
        counter,
        is_ebb, //
    },
    solved_groups::Solved, //
};
use crate::{
    isa207::{
        Assignment,
        Demand,
        Pmcs,
        COUNTERS, //
    },
    perf::{
        CounterState,
        Event, //
    },
    power::{
        pmu,
        regs::{
            Mmcr2,
            Mmcra, //
        },
        thread::Sampled, //
    }, //
};
use core::cell::Cell;

/// A bit for each counter.
const ALL_COUNTERS: u8 = (1 << COUNTERS) - 1;

/// What MMCRA and MMCR2 never hold: not all of their bits exist.
const UNKNOWN: u64 = !0;

/// What a CPU's PMU holds.
#[derive(Default)]
pub(super) struct Left {
    /// The solution that the control registers are of, if it is known.
    programmed: Cell<Option<Solved>>,
    /// The counter of each slot in that solution.
    pmcs: Cell<Pmcs>,
    /// It is that of an EBB group.
    ebb: Cell<bool>,
    /// What the event in each slot asked for then, as [`Hw::words`](crate::perf::Hw::words) keeps
    /// it.
    demands: [Cell<[u64; Demand::WORDS]>; COUNTERS],
    /// The number of these; 0 if others that ask for the same may need another solution.
    alike: Cell<usize>,
    /// The values of counters that events left since the PMU last ran.
    values: [Cell<u32>; COUNTERS],
    /// The counters, a bit each, that hold values which later events must not see or count on.
    stale: Cell<u8>,
    /// How often the PMU was started, modulo 2^32.
    starts: Cell<u32>,
    /// MMCRA, or [`UNKNOWN`].
    mmcra: Cell<u64>,
    /// MMCR2, or [`UNKNOWN`].
    mmcr2: Cell<u64>,
    /// The program's registers that an alert changes, if the PMU holds SIER, SIER2 and SIER3 as
    /// they were saved, or did before an idle state. Trace interrupts may have changed SIAR and
    /// SDAR.
    pub(super) sampled: Cell<Option<Sampled>>,
}

impl Left {
    /// Forgets all: the registers may hold anything.
    pub(super) fn forget(&self) {
        self.programmed.set(None);
        self.stale.set(ALL_COUNTERS);
        self.mmcra.set(UNKNOWN);
        self.mmcr2.set(UNKNOWN);
        self.sampled.set(None);
    }

    /// Forgets MMCRA, whose threshold counter a program or the hardware may have changed.
    pub(super) fn forget_mmcra(&self) {
        self.mmcra.set(UNKNOWN);
    }

    /// Notes that what `solved` stood for is replaced by another group's solution.
    pub(super) fn replaced(&self, solved: Option<Solved>) {
        if self.programmed.get() == solved {
            self.programmed.set(None);
        }
    }

    /// Notes that the control registers are of no solution that is kept.
    #[inline]
    pub(super) fn unsolved(&self) {
        self.programmed.set(None);
    }

    /// Notes that the PMU is programmed for the CPU's events with `assignment`, which is kept as
    /// `solved`. `alike`: any events that ask for the same have the same solution.
    #[inline]
    pub(super) fn programmed(
        &self,
        this_cpu: &ExclusiveCpu,
        solved: Option<Solved>,
        assignment: &Assignment,
        alike: bool,
    ) {
        self.programmed.set(solved);
        self.pmcs.set(assignment.pmcs);
        self.ebb.set(this_cpu.slots().get(0).is_some_and(is_ebb));
        self.alike.set(0);
        if alike {
            for (demand, event) in self.demands.iter().zip(this_cpu.slots().iter()) {
                demand.set(event.hw().words());
            }
            self.alike.set(this_cpu.slots().len());
        }
    }

    /// The solution that the control registers are of, if it is that of the CPU's events, too: of a
    /// task's that inherited the same, or of one that asks for the same.
    #[inline]
    pub(super) fn find_alike(&self, this_cpu: &ExclusiveCpu) -> Option<Solved> {
        let programmed = self.programmed.get()?;
        let events = this_cpu.slots();
        let mut pairs = self.demands.iter().zip(events.iter());
        let differ = |(demand, event): (&Cell<_>, &Event)| {
            let words: [u64; Demand::WORDS] = demand.get();
            let pairs = words.into_iter().zip(event.hw().words());
            pairs.fold(0, |differ, (one, other)| differ | one ^ other)
        };
        let is_alike = events.len() == self.alike.get() && pairs.all(|pair| differ(pair) == 0);
        is_alike.then_some(programmed)
    }

    /// Whether the control registers are those of a solution that is kept.
    #[inline]
    pub(super) fn is_known(&self) -> bool {
        self.programmed.get().is_some()
    }

    /// Whether the control registers are those of `solved`, and each of the CPU's events that is on
    /// a counter is on that of its slot.
    ///
    /// It may be on another: while a task's events stay, a switch of cgroups takes the CPU's out
    /// and in, and the same events may have run in another order, as they ask for the same.
    #[inline]
    pub(super) fn holds(&self, this_cpu: &ExclusiveCpu, solved: Option<Solved>) -> bool {
        let mut places = this_cpu.slots().iter().zip(self.counters());
        solved.is_some()
            && self.programmed.get() == solved
            && places.all(|(event, index)| counter(event).is_none_or(|on| on == index))
    }

    /// Whether they are those of an EBB group.
    #[inline]
    pub(super) fn is_ebb(&self) -> bool {
        self.ebb.get()
    }

    /// The counter of each slot, while [`Left::holds`].
    #[inline]
    pub(super) fn counters(&self) -> impl Iterator<Item = usize> {
        self.pmcs.get().iter().map(|pmc| pmc.index())
    }

    /// Notes that the PMU is started.
    #[inline]
    pub(super) fn start(&self) {
        self.starts.set(self.starts.get().wrapping_add(1));
    }

    /// By what a program's event shows that it left this CPU since the PMU last ran, so that the
    /// counters are as the program left them ([`Hw::mark`](crate::perf::Hw::mark)).
    #[inline]
    pub(super) fn mark(&self, this_cpu: &ExclusiveCpu) -> u64 {
        // Never 0, which an event has at first.
        let cpu = u64::from(this_cpu.id().as_u32()).wrapping_add(1);
        cpu << 32 | u64::from(self.starts.get())
    }

    /// Notes that an event that is up to date leaves the counter `index`.
    #[inline]
    pub(super) fn leave(&self, this_cpu: &ExclusiveCpu, event: &Event, index: usize) {
        let value = match event.hw().state() {
            // CAST: `count::collect` stored the counter's value.
            CounterState::Running => event.hw().prev_count() as u32,
            // It has counted on, but not for the event.
            CounterState::Stopped => {
                pmu::write_pmc(index, 0);
                0
            }
        };
        if let Some(left) = self.values.get(index) {
            left.set(value);
        }
        self.add_stale(1 << index);
        if is_ebb(event) {
            let hw = event.hw_mut(this_cpu.irqs_off());
            hw.set_mark(self.mark(this_cpu));
        }
    }

    /// What an event left in the counter `index`.
    #[inline]
    pub(super) fn value(&self, index: usize) -> u32 {
        self.values.get(index).map_or(0, Cell::get)
    }

    /// Notes counters, a bit each, that hold what later events must not see or count on.
    pub(super) fn add_stale(&self, counters: u8) {
        self.stale.set(self.stale.get() | counters);
    }

    /// Those counters.
    pub(super) fn stale(&self) -> u8 {
        self.stale.get()
    }

    /// Those counters, of which the caller takes care.
    pub(super) fn take_stale(&self) -> u8 {
        self.stale.replace(0)
    }

    /// Notes what a program left in MMCR2; `None` if that is not there any more.
    #[inline]
    pub(super) fn set_mmcr2(&self, mmcr2: Option<u64>) {
        self.mmcr2.set(mmcr2.unwrap_or(UNKNOWN));
    }

    /// Writes MMCR2 unless it is known to hold the value, and knows it then if it `stays`.
    #[inline]
    pub(super) fn write_mmcr2(&self, mmcr2: u64, stays: bool) {
        if self.mmcr2.get() == mmcr2 {
            return;
        }
        self.mmcr2.set(if stays { mmcr2 } else { UNKNOWN });
        Mmcr2::write(mmcr2);
    }

    /// Writes MMCRA unless it is known to hold the value, and knows it then if it `stays`. Returns
    /// whether it did.
    #[inline]
    pub(super) fn write_mmcra(&self, mmcra: Mmcra, stays: bool) -> bool {
        let value = u64::from(mmcra);
        if self.mmcra.get() == value {
            return false;
        }
        self.mmcra.set(if stays { value } else { UNKNOWN });
        mmcra.write();
        true
    }
}

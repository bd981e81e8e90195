// SPDX-License-Identifier: GPL-2.0

//! The values that a CPU's PMU registers are known to hold.
//!
//! A register that is known to hold a value is not written with it again. So the driver always asks
//! for everything that the PMU must hold, and only differences are written: after a task that comes
//! back to the PMU that it left, there are few.
//!
//! Knowledge does not depend on the code that wrote a value, so there is nothing else to prove
//! about a write that is left out. A value becomes unknown when something other than the driver may
//! change it:
//!
//! - The PMU starts ([`PmuCache::started`]): the counters that run, SIER, SIER2 and SIER3.
//! - The PMU starts for a program with EBBs: all counters, and when it starts for another program
//!   or
//!   without one MMCRA, as problem state can write the threshold counter in it.
//! - An event has a threshold: MMCRA, as its threshold counter counts while the PMU is frozen.
//! - A counter is found negative: that counter, as an alert may wait in it.
//! - A CPU comes up, an idle state of bare metal loses registers, or MMCR1 is not as it was written
//!   ([`PmuCache::is_intact`]): all registers.
//!
//! MMCR2 is read when a program's counters are frozen. SIAR and SDAR are never known, as a frozen
//! PMU does not keep them: trace interrupts write both, when a debugger steps another program or
//! the kernel steps over a probe, and MMCRA's SDAR mode lets hardware write SDAR.
//!
//! Code that writes registers without the cache: the PMI handler, `start`, `stop` and `execve`, to
//! counters of a PMU that runs or that have an event, which are unknown; and `HiddenInstruction`,
//! `LocalPmu::restore_pmao` and the emulator's latch, which put back what they found.

use super::{
    pmu::{
        self,
        LocalPmu,
        COUNTERS, //
    },
    regs::{
        Mmcr0,
        Mmcr1,
        Mmcr2,
        Mmcr3,
        Mmcra,
        Register,
        Sier,
        Sier2,
        Sier3,
        MMCR2_FREEZE, //
    }, //
};
use core::cell::Cell;

/// The registers that have a place in the cache, behind PMC1 to PMC6.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// MMCR1.
    Mmcr1 = COUNTERS as isize,
    /// MMCR2.
    Mmcr2,
    /// MMCR3.
    Mmcr3,
    /// MMCRA.
    Mmcra,
    /// SIER.
    Sier,
    /// SIER2.
    Sier2,
    /// SIER3.
    Sier3,
}

/// The number of places.
const PLACES: usize = Place::Sier3 as usize + 1;

/// A register that has a place in the cache.
pub(crate) trait CachedRegister: Register {
    /// The place.
    const PLACE: Place;
}

/// Gives registers the places of their names.
macro_rules! cached {
    ($($register:ident),* $(,)?) => { $(
        impl CachedRegister for $register {
            const PLACE: Place = Place::$register;
        }
    )* };
}

cached!(Mmcr1, Mmcr2, Mmcr3, Mmcra, Sier, Sier2, Sier3);

/// A set of registers, a bit for each place.
type Set = u16;

/// PMC5 and PMC6, a bit each, which MMCR0\[FC5-6\] stops together.
const FIXED: u8 = 0b11_0000;

const COUNTERS_SET: Set = (1 << COUNTERS) - 1;
const MMCRA_SET: Set = 1 << Place::Mmcra as Set;
/// SIER, SIER2 and SIER3, which describe the sampled instruction.
const SAMPLED_SET: Set =
    1 << Place::Sier as Set | 1 << Place::Sier2 as Set | 1 << Place::Sier3 as Set;

/// Identity of a program with EBBs: of two different ones, at least one field differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProgramId {
    /// The number of an event that the program's task has.
    pub(crate) event: u64,
    /// The number of programs that the task executed before
    /// ([`current_program`](super::exec::current_program)).
    pub(crate) execs: u64,
}

/// The values that the registers of a CPU's PMU are known to hold.
#[derive(Default)]
pub(crate) struct PmuCache {
    /// The registers whose value is known.
    known: Cell<Set>,
    /// The value of those.
    values: [Cell<u64>; PLACES],
    /// The program that the PMU was started for last, if it was started for one. In a counter that
    /// is unknown the program finds what it left. The value of MMCRA is known except for the
    /// threshold counter, which the program may have written.
    program: Cell<Option<ProgramId>>,
    /// The counters that had an event at the last start, a bit each, PMC1 the lowest.
    used: Cell<u8>,
    /// The PMU's registers do not read as they were written: the hypervisor gives this partition no
    /// PMU, or the processor lacks bits. So they do not show whether the PMU was lost.
    forgets_writes: Cell<bool>,
}

impl PmuCache {
    /// Forgets all values.
    pub(crate) fn forget_values(&self) {
        self.known.set(0);
    }

    /// Forgets everything, the program of the last start too.
    pub(crate) fn forget(&self) {
        self.forget_values();
        self.program.set(None);
        self.forgets_writes.set(false);
    }

    /// Forgets the registers that an alert sets.
    pub(crate) fn forget_sampled(&self) {
        self.forget_set(SAMPLED_SET);
    }

    /// Forgets MMCRA, of which the threshold counter counts.
    pub(crate) fn forget_mmcra(&self) {
        self.forget_set(MMCRA_SET);
    }

    fn forget_set(&self, set: Set) {
        self.known.set(self.known.get() & !set);
    }

    /// Writes a register unless it holds the value already.
    #[inline]
    pub(crate) fn write<R: CachedRegister>(&self, value: u64) {
        if self.value(R::PLACE as usize) != Some(value) {
            R::write_value(value);
            self.set_value(R::PLACE as usize, value);
        }
    }

    /// Reads a register.
    #[inline]
    pub(crate) fn read<R: CachedRegister>(&self) -> u64 {
        let value = R::read_value();
        self.set_value(R::PLACE as usize, value);
        value
    }

    #[inline]
    fn value(&self, place: usize) -> Option<u64> {
        let is_known = self.known.get() & 1 << place != 0;
        self.values.get(place).filter(|_| is_known).map(Cell::get)
    }

    #[inline]
    fn set_value(&self, place: usize, value: u64) {
        if let Some(at) = self.values.get(place) {
            at.set(value);
            self.known.set(self.known.get() | 1 << place);
        }
    }

    /// Freezes the PMU as [`LocalPmu::freeze`] does, for a program with EBBs. Returns MMCR0 and
    /// MMCR2 as they were.
    ///
    /// An alert changes MMCR0 (FC, PMAE, PMAO), and would be lost between the read and the write.
    /// If a counter counts in the kernel or in a hypervisor (`counts_kernel`), the counters freeze
    /// before the read, by MMCR2, which no alert changes. Other counters are frozen since the
    /// program entered the kernel.
    pub(crate) fn freeze_program(
        &self,
        local: &LocalPmu<'_>,
        pmccext: bool,
        counts_kernel: bool,
    ) -> (Mmcr0, u64) {
        let mmcr2 = self.read::<Mmcr2>();
        if counts_kernel {
            self.write::<Mmcr2>(MMCR2_FREEZE);
            pmu::synchronize();
        }
        (local.freeze(pmccext), mmcr2)
    }

    /// Returns whether the frozen PMU still holds what it is known to hold, as far as one register
    /// shows. It does not after other code wrote to it: a hypervisor that suspended the partition
    /// and resumed it on another machine (no CPU comes up then), or xmon.
    pub(crate) fn is_intact(&self) -> bool {
        if self.forgets_writes.get() {
            return true;
        }
        match self.value(Place::Mmcr1 as usize) {
            None => true,
            // A PMU that was reset has 0 there, too. But it is not closed to programs.
            Some(0) => Mmcr0::read().is_closed(),
            Some(value) => Mmcr1::read() == value,
        }
    }

    /// Notes whether MMCR0 and MMCR1, which were written just now, read as they were written.
    pub(crate) fn test_writes(&self) {
        self.forgets_writes.set(!self.is_intact());
    }

    /// Prepares for the next start: for `program`, or for no program. Returns whether it is
    /// the program of the last start. If not, that one may have written MMCRA's threshold counter,
    /// so MMCRA is unknown from now on.
    pub(crate) fn hand_over(&self, program: Option<ProgramId>) -> bool {
        let is_same = program.is_some() && program == self.program.get();
        if !is_same && self.program.replace(program).is_some() {
            self.forget_mmcra();
        }
        is_same
    }

    /// Returns the value of a counter (0 for PMC1), if it is known.
    #[inline]
    pub(crate) fn pmc(&self, index: usize) -> Option<u32> {
        // CAST: A counter has 32 bits.
        self.value(index).map(|value| value as u32)
    }

    /// Notes the value of a counter, which was read. The counter must not run.
    #[inline]
    pub(crate) fn pmc_was_read(&self, index: usize, value: u32) {
        if value < pmu::NEGATIVE {
            self.set_value(index, value.into());
        } else {
            self.forget_set(1 << index);
        }
    }

    /// Writes a counter unless it holds the value already.
    #[inline]
    pub(crate) fn write_pmc(&self, index: usize, value: u32) {
        if self.pmc(index) != Some(value) {
            pmu::write_pmc(index, value);
            self.pmc_was_read(index, value);
        }
    }

    /// Clears counters that have no event, a bit each, PMC1 the lowest. A program finds 0 in them,
    /// or if it `is_same`, as [`PmuCache::hand_over`] says, what it left in those that had no event
    /// at the last start either. Without a program a counter may hold anything except an alert.
    pub(crate) fn clear_unused_pmcs(&self, unused: u8, is_same: bool) {
        let may_stay = match self.program.get() {
            Some(_) if is_same => !Set::from(self.used.get()),
            Some(_) => 0,
            None => self.known.get(),
        };
        let mut cleared = Set::from(unused) & !may_stay;
        while cleared != 0 {
            // CAST: At most 16.
            self.write_pmc(cleared.trailing_zeros() as usize, 0);
            cleared &= cleared.wrapping_sub(1);
        }
    }

    /// Notes that the PMU starts, for the program of [`PmuCache::hand_over`] if there is one.
    /// `used`: the counters with an event, a bit each, PMC1 the lowest.
    pub(crate) fn started(&self, used: u8) {
        let mut changing = SAMPLED_SET | Set::from(used);
        if used & FIXED != 0 {
            changing |= Set::from(FIXED);
        }
        if self.program.get().is_some() {
            changing |= COUNTERS_SET;
        }
        self.forget_set(changing);
        self.used.set(used);
    }
}

// SPDX-License-Identifier: GPL-2.0

//! A cache of the values in a CPU's PMU registers.
//!
//! A register that is known to hold a value is not written with the same value again. So the driver
//! always requests everything that the PMU must hold, and only the differences are written. When a
//! task returns to the PMU that it left, there are few differences.
//!
//! Which code wrote a value does not matter. So every omitted write is correct if the known values
//! are correct. A value becomes unknown when something other than the driver may change it:
//!
//!
//! - The PMU starts ([`PmuCache::record_start`]): the running counters, SIER, SIER2 and SIER3.
//! - The PMU starts for a program with EBBs: all counters. When it starts next for a different
//!   program or without a program, also MMCRA, because problem state can write the threshold
//!   counter in it.
//! - An event has a threshold: MMCRA, because its threshold counter counts while the PMU is frozen.
//! - A counter is read as negative: that counter, because an alert may be pending for it.
//! - A CPU comes up, an idle state of bare metal loses registers, or other code has changed them
//!   ([`PmuCache::is_intact`]): all registers.
//!
//! MMCR2 is read when a program's counters are frozen. SIAR and SDAR are never known, because a
//! frozen PMU does not preserve them: trace interrupts write both, when a debugger steps another
//! program or the kernel steps over a probe, and with MMCRA's SDAR mode hardware may write SDAR.
//!
//! Some code writes registers without the cache. The PMI handler, `start`, `stop` and `execve`
//! write counters of a running PMU or counters with an event, whose values are unknown.
//! `HiddenInstruction`, `LocalPmu::restore_pmao` and the emulator's latch restore the values that
//! they found.

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

/// The indexes of the registers in the cache, after those of PMC1 to PMC6.
#[derive(Clone, Copy)]
pub(crate) enum CacheIndex {
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

/// Number of registers in the cache, including PMC1 to PMC6.
const CACHED_REGISTERS: usize = CacheIndex::Sier3 as usize + 1;

/// A register that the cache may hold.
pub(crate) trait CachedRegister: Register {
    /// The register's index in the cache.
    const INDEX: CacheIndex;
}

/// Gives each register the index of the same name.
macro_rules! cached {
    ($($register:ident),* $(,)?) => { $(
        impl CachedRegister for $register {
            const INDEX: CacheIndex = CacheIndex::$register;
        }
    )* };
}

cached!(Mmcr1, Mmcr2, Mmcr3, Mmcra, Sier, Sier2, Sier3);

/// A set of registers, one bit for each index in the cache.
type Set = u16;

/// PMC5 and PMC6, one bit each. MMCR0\[FC5-6\] stops both together.
const FIXED: u8 = 0b11_0000;

const COUNTERS_SET: Set = (1 << COUNTERS) - 1;
const MMCRA_SET: Set = 1 << CacheIndex::Mmcra as Set;
/// SIER, SIER2 and SIER3, which describe the sampled instruction.
const SAMPLED_SET: Set =
    1 << CacheIndex::Sier as Set | 1 << CacheIndex::Sier2 as Set | 1 << CacheIndex::Sier3 as Set;

/// Identity of a program with EBBs. Two different programs differ in at least one field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProgramId {
    /// The id of an event of the program's task.
    pub(crate) event: u64,
    /// The number of programs that the task executed before this one
    /// ([`current_program`](super::exec::current_program)).
    pub(crate) execs: u64,
}

/// The values that the registers of a CPU's PMU are known to hold.
#[derive(Default)]
pub(crate) struct PmuCache {
    /// The registers whose value is known.
    known: Cell<Set>,
    /// The values of the registers; only those in `known` are valid.
    values: [Cell<u64>; CACHED_REGISTERS],
    /// The program for which the PMU was started last, or `None` if it was started without one. An
    /// unknown counter holds the program's own value. The cached value of MMCRA is correct except
    /// for the threshold counter, which the program may have written.
    program: Cell<Option<ProgramId>>,
    /// The counters that had an event at the last start, one bit each; PMC1 is the lowest.
    used: Cell<u8>,
    /// Whether the PMU's registers do not return the values written to them: the hypervisor gives
    /// this partition no PMU, or the processor lacks bits. Then they cannot show whether the PMU's
    /// contents were lost.
    forgets_writes: Cell<bool>,
}

impl PmuCache {
    /// Forgets all values.
    pub(crate) fn forget_values(&self) {
        self.known.set(0);
    }

    /// Forgets everything, including the program of the last start.
    pub(crate) fn forget(&self) {
        self.forget_values();
        self.program.set(None);
        self.forgets_writes.set(false);
    }

    /// Forgets the values of the registers that an alert sets.
    pub(crate) fn forget_sampled_registers(&self) {
        self.forget_set(SAMPLED_SET);
    }

    /// Forgets the value of MMCRA, because its threshold counter counts.
    pub(crate) fn forget_mmcra(&self) {
        self.forget_set(MMCRA_SET);
    }

    fn forget_set(&self, set: Set) {
        self.known.set(self.known.get() & !set);
    }

    /// Writes a register unless it is known to hold the value.
    #[inline]
    pub(crate) fn write<R: CachedRegister>(&self, value: u64) {
        if self.value(R::INDEX as usize) != Some(value) {
            R::write_value(value);
            self.set_value(R::INDEX as usize, value);
        }
    }

    /// Reads a register and caches the value.
    #[inline]
    pub(crate) fn read<R: CachedRegister>(&self) -> u64 {
        let value = R::read_value();
        self.set_value(R::INDEX as usize, value);
        value
    }

    #[inline]
    fn value(&self, index: usize) -> Option<u64> {
        let is_known = self.known.get() & 1 << index != 0;
        self.values.get(index).filter(|_| is_known).map(Cell::get)
    }

    #[inline]
    fn set_value(&self, index: usize, value: u64) {
        if let Some(at) = self.values.get(index) {
            at.set(value);
            self.known.set(self.known.get() | 1 << index);
        }
    }

    /// Freezes the PMU like [`LocalPmu::freeze`], for a program with EBBs. Returns the old values
    /// of MMCR0 and MMCR2.
    ///
    /// An alert changes MMCR0 (FC, PMAE, PMAO); one between the read and the write of MMCR0 would
    /// be lost. If a counter counts in the kernel or in a hypervisor (`counts_kernel`), MMCR2,
    /// which no alert changes, freezes the counters before the read. Otherwise the counters are
    /// frozen since the program entered the kernel.
    pub(crate) fn freeze_ebb_group(
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

    /// Returns whether the frozen PMU still holds the known values, judged by one register. It does
    /// not if other code has written to the PMU: xmon, or a hypervisor that suspended the partition
    /// and resumed it on another machine, in which case no CPU comes up.
    pub(crate) fn is_intact(&self) -> bool {
        if self.forgets_writes.get() {
            return true;
        }
        match self.value(CacheIndex::Mmcr1 as usize) {
            None => true,
            // A PMU that was reset also has 0 there, but it is not closed to programs.
            Some(0) => Mmcr0::read().is_closed(),
            Some(value) => Mmcr1::read() == value,
        }
    }

    /// Records whether MMCR0 and MMCR1, which were written just now, return the written values.
    pub(crate) fn test_writes(&self) {
        self.forgets_writes.set(!self.is_intact());
    }

    /// Prepares for the next start: for `program`, or for no program. Returns whether it is the
    /// program of the last start. If not, the previous program may have written MMCRA's threshold
    /// counter, so MMCRA is unknown from now on.
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

    /// Records a value that was read from a counter. The counter must not run.
    #[inline]
    pub(crate) fn record_pmc(&self, index: usize, value: u32) {
        if value < pmu::NEGATIVE {
            self.set_value(index, value.into());
        } else {
            self.forget_set(1 << index);
        }
    }

    /// Writes a counter unless it is known to hold the value.
    #[inline]
    pub(crate) fn write_pmc(&self, index: usize, value: u32) {
        if self.pmc(index) != Some(value) {
            pmu::write_pmc(index, value);
            self.record_pmc(index, value);
        }
    }

    /// Clears the counters without an event (`unused`: one bit each, PMC1 is the lowest). A program
    /// must find 0 in them. But if it `is_same`, as [`PmuCache::hand_over`] returned, it finds its
    /// own values in those that had no event at the last start either. Without a program a counter
    /// may hold anything except an alert.
    pub(crate) fn clear_unused_pmcs(&self, unused: u8, is_same: bool) {
        let may_stay = match self.program.get() {
            Some(_) if is_same => !Set::from(self.used.get()),
            Some(_) => 0,
            None => self.known.get(),
        };
        let mut cleared = Set::from(unused) & !may_stay;
        while cleared != 0 {
            // CAST: A `u16` has at most 16 trailing zeros.
            self.write_pmc(cleared.trailing_zeros() as usize, 0);
            cleared &= cleared.wrapping_sub(1);
        }
    }

    /// Records that the PMU starts, for the program of [`PmuCache::hand_over`] if there is one.
    /// `used` are the counters with an event, one bit each; PMC1 is the lowest.
    pub(crate) fn record_start(&self, used: u8) {
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

// SPDX-License-Identifier: GPL-2.0
//! Reads what a program can see of the PMU, and checks that it belongs to the program.

use std::fmt;

use ktap::Failure;
use ktap::check;

use crate::marks;
use crate::marks::Pace;
use crate::registers;
use pmu_selftests::random::Random;

/// Values of PMC1 to PMC6 that could be read.
#[derive(Clone, Copy, Default)]
pub struct Counters([Option<u64>; 6]);

/// Result of a look.
#[derive(Default)]
pub struct Seen {
    /// Values of the counters.
    pub counters: Counters,
    /// Percentage of other processes' marks in these counters that the thread would have
    /// recognised.
    pub told: u64,
    /// Number of BHRB entries with an address of this program's page with branches.
    pub branches: u64,
}

impl Counters {
    /// Returns how far the counters with the mark of `number` have counted at most.
    pub fn furthest(&self, number: u64) -> u64 {
        let own = self.0.iter().flatten();
        let counted = own.filter_map(|&value| marks::counted(number, value));
        counted.max().unwrap_or(0)
    }

    /// Returns how many counters could be read.
    pub fn seen(&self) -> u64 {
        self.0.iter().flatten().count() as u64
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for value in self.0 {
            match value {
                Some(value) => write!(f, " {value:x}")?,
                None => write!(f, " -")?,
            }
        }
        Ok(())
    }
}

/// Reads what a program can see of the PMU; fails if it belongs to a process with another number.
/// MMCR2 may have bits of the kernel if `kernel_mmcr2`.
pub fn look(
    number: u64,
    pace: Pace,
    kernel_mmcr2: bool,
    random: &mut Random,
) -> Result<Seen, Failure> {
    let mut seen = Seen::default();
    // Must be before other reads, as each branch on the way replaces an older entry.
    for (n, &address) in registers::bhrb().iter().flatten().enumerate() {
        let foreign = marks::is_foreign_address(number, address) || address >> 62 != 0;
        check!(
            !foreign,
            "BHRB entry {n} is not this program's: {address:#x}"
        );
        seen.branches += u64::from(marks::is_address(number, address));
    }
    let first = &registers::PMCS[random.below(6) as usize];
    // Mostly nothing is readable, and each attempt takes a signal.
    let count = match first.read() {
        Some(_) => registers::PMCS.len(),
        None => random.below(2) as usize,
    };
    let mut counters = Counters::default();
    for (value, pmc) in counters.0.iter_mut().zip(&registers::PMCS[..count]) {
        *value = pmc.read();
    }
    let most = pace.most_counted();
    if counters.seen() > 0 {
        seen.told = marks::told(number, most);
    }
    for (value, pmc) in counters.0.iter().zip(&registers::PMCS) {
        let is_foreign = |value| marks::is_foreign_counter(number, value, most);
        let foreign = value.filter(|&value| is_foreign(value));
        check!(
            foreign.is_none(),
            "{} is another program's, of{counters}",
            pmc.name
        );
    }
    if counters.seen() > 0 || random.once_in(16) {
        let mmcr2 = registers::MMCR2[0].read().unwrap_or(0);
        let foreign = !kernel_mmcr2 && marks::is_foreign_mmcr2(number, mmcr2);
        check!(!foreign, "MMCR2 is another program's: {mmcr2:#x}");
    }
    if random.once_in(4) {
        // In QEMU a program can read them even without access to the PMU.
        let addresses = match counters.seen() == 0 && pace.is_of_emulator() {
            true => &[],
            false => &registers::ADDRESSES[..],
        };
        for register in addresses {
            let value = register.read().unwrap_or(0);
            let foreign = marks::is_foreign_address(number, value);
            check!(
                !foreign,
                "{} is another program's: {value:#x}",
                register.name
            );
        }
        let _ = registers::OTHERS[random.below(registers::OTHERS.len() as u64) as usize].read();
    }
    seen.counters = counters;
    Ok(seen)
}

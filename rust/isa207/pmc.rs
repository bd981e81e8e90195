// SPDX-License-Identifier: GPL-2.0

//! The performance monitor counters.

/// Number of counters: PMC1 to PMC4 programmable, PMC5 and PMC6 fixed.
pub const COUNTERS: usize = 6;

/// A performance monitor counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pmc {
    /// PMC1, programmable
    Pmc1,
    /// PMC2, programmable
    Pmc2,
    /// PMC3, programmable
    Pmc3,
    /// PMC4, programmable
    Pmc4,
    /// PMC5: instructions completed
    Pmc5,
    /// PMC6: cycles
    Pmc6,
}

impl Pmc {
    /// Every counter in order.
    pub const ALL: [Pmc; COUNTERS] = [
        Self::Pmc1,
        Self::Pmc2,
        Self::Pmc3,
        Self::Pmc4,
        Self::Pmc5,
        Self::Pmc6,
    ];

    /// Returns the counter with this number, 1 to 6.
    pub const fn from_number(number: u64) -> Option<Self> {
        Some(match number {
            1 => Self::Pmc1,
            2 => Self::Pmc2,
            3 => Self::Pmc3,
            4 => Self::Pmc4,
            5 => Self::Pmc5,
            6 => Self::Pmc6,
            _ => return None,
        })
    }

    /// Returns the first counter of a set ([`Pmc::bit`]); `None` if the set is empty.
    pub(crate) const fn lowest(set: u8) -> Option<Self> {
        // CAST: A `u8` has at most 8 trailing zeros, so the sum is at most 9.
        Self::from_number(set.trailing_zeros().wrapping_add(1) as u64)
    }

    /// Returns the counter's index: 0 for PMC1 to 5 for PMC6.
    pub const fn index(self) -> usize {
        // CAST: The discriminants are 0 to 5, which any integer type holds.
        self as usize
    }

    /// Returns the counter's number: 1 for PMC1 to 6 for PMC6.
    pub const fn number(self) -> usize {
        self.index().wrapping_add(1)
    }

    /// Returns the counter's bit in a set of counters; PMC1 has the lowest bit.
    pub(crate) const fn bit(self) -> u8 {
        // CAST: The discriminants are 0 to 5, which any integer type holds.
        1_u8.wrapping_shl(self as u32)
    }

    /// Returns whether the counter is one of PMC1 to PMC4, which can count any event.
    pub const fn is_programmable(self) -> bool {
        self.index() < 4
    }
}

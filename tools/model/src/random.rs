// SPDX-License-Identifier: GPL-2.0

//! Pseudo-random numbers (xorshift64*), for choices that the ISA leaves to hardware. A seed always
//! gives the same numbers.

/// A generator of pseudo-random numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random(u64);

impl Random {
    /// Creates a generator with a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1)
    }

    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns true with a probability of 1 in `count`.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// Returns a random number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        (self.bits() >> 32) % limit
    }
}

// SPDX-License-Identifier: GPL-2.0
//! Numbers that depend on a seed only, so that a run can be repeated.

/// A sequence of numbers (SplitMix64).
pub struct Random(u64);

impl Random {
    /// Creates the sequence of this seed and these numbers, such as a process and its step.
    pub fn new(seed: u64, of: &[u64]) -> Self {
        let mut random = Self(seed);
        for &number in of {
            random.0 = random.any() ^ number;
        }
        random
    }

    /// Returns any number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Returns a number below `n`, which must not be 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.any() % n
    }

    /// Returns true once in `n` times on average.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns one of the elements of `from`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Returns a random subset of `bits`, in which each bit is set with probability 1/8.
    pub fn few_of(&mut self, bits: u64) -> u64 {
        bits & self.any() & self.any() & self.any()
    }

    /// Returns a number of at most `bits` bits. All lengths are equally likely.
    pub fn up_to_bits(&mut self, bits: u64) -> u64 {
        let bits = 1 + self.below(bits);
        self.any() >> (64 - bits)
    }
}

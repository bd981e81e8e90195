// SPDX-License-Identifier: GPL-2.0
//! Numbers that follow from a seed and from nothing that happens in the run.

/// A sequence of numbers (SplitMix64).
pub struct Random(u64);

impl Random {
    /// The sequence of this seed and these numbers, such as a process and its step.
    pub fn new(seed: u64, of: &[u64]) -> Self {
        let mut random = Self(seed);
        for &number in of {
            random.0 = random.any() ^ number;
        }
        random
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.any() % n
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of these, of which there is one at least.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// A number with each of `bits` set or not; mostly not.
    pub fn few_of(&mut self, bits: u64) -> u64 {
        bits & self.any() & self.any() & self.any()
    }

    /// A number of up to `bits` bits, short ones as often as long ones.
    pub fn up_to_bits(&mut self, bits: u64) -> u64 {
        let bits = 1 + self.below(bits);
        self.any() >> (64 - bits)
    }
}

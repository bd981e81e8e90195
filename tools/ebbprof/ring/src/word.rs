// SPDX-License-Identifier: MIT OR Apache-2.0
//! Encoding of the first word of a sample.

/// Position of the number of further words in the first word.
pub const MORE_SHIFT: u32 = 56;
/// Mask of the lower bits, which hold the time base.
const TIME_BASE: u64 = (1 << MORE_SHIFT) - 1;

/// Returns the first word of a sample: the lower bits of the time base, which wrap around in years,
/// and the number of further words.
#[inline(always)]
#[must_use]
pub const fn first_word(time_base: u64, more: u64) -> u64 {
    time_base & TIME_BASE | more << MORE_SHIFT
}

/// Returns the time base of a sample of a thread that existed at `near`, within two years of that.
#[must_use]
pub const fn time_base(first: u64, near: u64) -> u64 {
    // The difference of the lower bits, sign-extended.
    let bits = u64::BITS - MORE_SHIFT;
    let difference = (first.wrapping_sub(near) << bits).cast_signed() >> bits;
    near.wrapping_add_signed(difference)
}

#[cfg(test)]
mod tests {
    use super::first_word;
    use super::time_base;

    #[test]
    fn time_base_goes_on_where_its_lower_bits_come_round() {
        let around = 0x0300_0000_0000_0000;
        for (near, now) in [
            (5, 5),
            (around - 1, around + 7),
            (around, around - 3),
            (7, around / 8),
        ] {
            let first = first_word(now, 129);
            assert_eq!(first >> 56, 129);
            assert_eq!(time_base(first, near), now);
        }
    }
}

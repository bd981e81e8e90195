// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first word of a sample.

/// Where the number of further words is in the first.
pub const MORE_SHIFT: u32 = 56;
/// Its lower bits.
const TIME_BASE: u64 = (1 << MORE_SHIFT) - 1;

/// The first word of a sample: of the time base the lower bits, which come round in years, and how many
/// further words there are.
#[inline(always)]
#[must_use]
pub const fn first_word(time_base: u64, more: u64) -> u64 {
    time_base & TIME_BASE | more << MORE_SHIFT
}

/// The time base of a sample, of a thread that was there at `near`, within two years.
#[must_use]
pub const fn time_base(first: u64, near: u64) -> u64 {
    // The difference, with its sign.
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

// SPDX-License-Identifier: GPL-2.0

//! Bit fields of 64-bit words: event codes and registers.

/// A run of bits in a 64-bit word.
///
/// Stores shift and maximum, which [`Field::get`] needs most often, because the fields of a
/// `Layout` are read from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The field's lowest bit, counted from the word's least significant.
    shift: u32,
    /// The largest value the field holds; 0 for a field that does not exist.
    max: u64,
}

impl Field {
    /// A field that does not exist: it reads as 0 and has no bits.
    pub(crate) const NONE: Field = Field { shift: 0, max: 0 };

    /// Returns the field from bit `first` to bit `last`, both included, counted from the least
    /// significant bit as in sysfs `format/`.
    pub(crate) const fn bits(first: u32, last: u32) -> Self {
        Self {
            shift: first,
            max: (!0_u64).wrapping_shr(63_u32.wrapping_sub(last.wrapping_sub(first))),
        }
    }

    /// Returns the field from bit `first` to bit `last`, both included, counted from the most
    /// significant bit as in the Power ISA.
    pub(crate) const fn ibm(first: u32, last: u32) -> Self {
        Self::bits(63_u32.wrapping_sub(last), 63_u32.wrapping_sub(first))
    }

    /// Returns the number of bits; 0 for a field that does not exist.
    const fn width(self) -> u32 {
        self.max.count_ones()
    }

    /// Returns the field `n` positions to the right in a row of fields of the same width.
    pub(crate) const fn right(self, n: u32) -> Self {
        Self {
            shift: self.shift.wrapping_sub(n.wrapping_mul(self.width())),
            ..self
        }
    }

    /// Returns bits `first` to `last` of the field, counted from its lowest; `NONE` if the field
    /// does not exist.
    pub(crate) const fn part(self, first: u32, last: u32) -> Self {
        if self.exists() {
            let start = self.shift.wrapping_add(first);
            Self::bits(start, self.shift.wrapping_add(last))
        } else {
            Self::NONE
        }
    }

    /// Returns whether the field exists.
    pub(crate) const fn exists(self) -> bool {
        self.max != 0
    }

    /// Returns the bits of the word that belong to the field.
    pub const fn mask(self) -> u64 {
        self.max.wrapping_shl(self.shift)
    }

    /// Returns the field's value in `word`.
    pub const fn get(self, word: u64) -> u64 {
        word.wrapping_shr(self.shift) & self.max
    }

    /// Returns whether the field of `word` is not 0.
    pub(crate) const fn is_set(self, word: u64) -> bool {
        word & self.mask() != 0
    }

    /// Returns a word with `value` in the field and 0 elsewhere. Drops the bits of `value` that do
    /// not fit.
    pub(crate) const fn prep(self, value: u64) -> u64 {
        (value & self.max).wrapping_shl(self.shift)
    }

    /// Returns the field's lowest bit, counted from the least significant.
    pub const fn first_bit(self) -> u32 {
        self.shift
    }

    /// Returns the field's highest bit, counted from the least significant.
    pub const fn last_bit(self) -> u32 {
        self.shift.wrapping_add(self.width()).wrapping_sub(1)
    }
}

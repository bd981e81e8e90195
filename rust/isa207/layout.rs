// SPDX-License-Identifier: GPL-2.0

//! Where the fields of an event code lie, per generation, and as what perf
//! shows them in `format/`: tables for decoding, the check for reserved bits and
//! sysfs. `tests/hand/tables.rs` compares the files with what decoding accepts.
//!
//! Sources: the comments "Raw event encoding" in the kernel's
//! `arch/powerpc/perf/power{8,9,10}-pmu.c`.

use super::event_code::EventCode;

/// A run of bits in a 64-bit word: an event code or a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Least significant bit, counted from the least significant of the word.
    shift: u32,
    /// Number of bits, 0 for a field this CPU does not have.
    width: u32,
}

impl Field {
    /// A field that does not exist: reads as 0, owns no bit.
    pub(super) const NONE: Field = Field { shift: 0, width: 0 };

    /// The field from bit `first` up to bit `last`, both included, counted from
    /// the least significant bit as in `format/`.
    pub(super) const fn bits(first: u32, last: u32) -> Self {
        Self {
            shift: first,
            width: last.wrapping_sub(first).wrapping_add(1),
        }
    }

    /// The field from bit `first` to bit `last`, both included, counted from
    /// the most significant bit as in the Power ISA.
    pub(super) const fn ibm(first: u32, last: u32) -> Self {
        Self::bits(63_u32.wrapping_sub(last), 63_u32.wrapping_sub(first))
    }

    /// The largest value the field holds.
    const fn max(self) -> u64 {
        1_u64.wrapping_shl(self.width).wrapping_sub(1)
    }

    /// The bits of the word that belong to the field.
    pub const fn mask(self) -> u64 {
        self.max().wrapping_shl(self.shift)
    }

    /// The field's value in `word`.
    pub const fn of(self, word: u64) -> u64 {
        word.wrapping_shr(self.shift) & self.max()
    }

    /// Whether the field of `word` is anything but 0.
    pub(super) const fn is_set(self, word: u64) -> bool {
        self.of(word) != 0
    }

    /// A word with `value` in the field and 0 elsewhere. Bits of `value` that
    /// do not fit are dropped.
    pub(super) const fn put(self, value: u64) -> u64 {
        (value & self.max()).wrapping_shl(self.shift)
    }

    /// The field's lowest bit, counted from the least significant.
    pub const fn first_bit(self) -> u32 {
        self.shift
    }

    /// The field's highest bit, counted from the least significant.
    pub const fn last_bit(self) -> u32 {
        self.shift.wrapping_add(self.width).wrapping_sub(1)
    }
}

/// The word of `perf_event_attr` a field lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigWord {
    /// `attr.config`
    Config,
    /// `attr.config1`
    Config1,
}

impl ConfigWord {
    /// The word's name in `format/` files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Config1 => "config1",
        }
    }
}

/// One file of sysfs `format/`: `name` holds `word:first-last`.
#[derive(Clone, Copy, Debug)]
pub struct FormatField {
    /// File name.
    pub name: &'static str,
    /// The attribute word.
    pub word: ConfigWord,
    /// The bits in it.
    pub field: Field,
}

const fn config(name: &'static str, field: Field) -> FormatField {
    FormatField {
        name,
        word: ConfigWord::Config,
        field,
    }
}

/// The fields that differ between generations. A field the generation does not
/// have is [`Field::NONE`].
#[derive(Debug)]
pub(super) struct Layout {
    /// Combine mode of the event bus bits (PMCxCOMB).
    pub(super) combine: Field,
    /// Selects within the caches: the source qualifier of L1 reloads, on POWER8
    /// also L2 and L3 event groups.
    pub(super) cache_sel: Field,
    /// When SDAR is updated in continuous sampling.
    pub(super) sdar_mode: Field,
    /// Threshold to compare with, in `attr.config`: exponent and mantissa.
    pub(super) thresh_cmp: Field,
    /// Threshold to compare with, in `attr.config1`: a plain number.
    pub(super) thresh_cmp_config1: Field,
    /// Qualifies the scope of radix translation events.
    pub(super) radix_scope: Field,
    /// Which group of L2 and L3 events the unit's bus carries.
    pub(super) l2l3_sel: Field,
    /// Data source match of one counter: the 15 bits of its MMCR3 field.
    pub(super) source: Field,
    /// The files of `format/`.
    pub(super) formats: &'static [FormatField],
}

impl Layout {
    /// Power ISA v2.07: POWER8.
    pub(super) const V207: Layout = Layout {
        combine: Field::bits(11, 11),
        cache_sel: Field::bits(20, 23),
        sdar_mode: Field::NONE,
        thresh_cmp: Field::bits(40, 49),
        thresh_cmp_config1: Field::NONE,
        radix_scope: Field::NONE,
        l2l3_sel: Field::NONE,
        source: Field::NONE,
        formats: &[
            config("event", Field::bits(0, 49)),
            config("pmcxsel", EventCode::PMCXSEL),
            config("mark", EventCode::MARK),
            config("combine", Field::bits(11, 11)),
            config("unit", EventCode::UNIT),
            config("pmc", EventCode::PMC),
            config("cache_sel", Field::bits(20, 23)),
            config("sample_mode", EventCode::SAMPLE_MODE),
            config("thresh_sel", EventCode::THRESH_SEL),
            config("thresh_stop", EventCode::THRESH_STOP),
            config("thresh_start", EventCode::THRESH_START),
            config("thresh_cmp", Field::bits(40, 49)),
            config("ifm", EventCode::IFM),
            config("bhrb", EventCode::BHRB),
            config("ebb", EventCode::EBB),
        ],
    };

    /// Power ISA v3.0: POWER9.
    pub(super) const V300: Layout = Layout {
        combine: Field::bits(10, 11),
        cache_sel: Field::bits(20, 23),
        sdar_mode: Field::bits(50, 51),
        thresh_cmp: Field::bits(40, 49),
        thresh_cmp_config1: Field::NONE,
        radix_scope: Field::NONE,
        l2l3_sel: Field::NONE,
        source: Field::NONE,
        formats: &[
            config("event", Field::bits(0, 51)),
            config("pmcxsel", EventCode::PMCXSEL),
            config("mark", EventCode::MARK),
            config("combine", Field::bits(10, 11)),
            config("unit", EventCode::UNIT),
            config("pmc", EventCode::PMC),
            config("cache_sel", Field::bits(20, 23)),
            config("sample_mode", EventCode::SAMPLE_MODE),
            config("thresh_sel", EventCode::THRESH_SEL),
            config("thresh_stop", EventCode::THRESH_STOP),
            config("thresh_start", EventCode::THRESH_START),
            config("thresh_cmp", Field::bits(40, 49)),
            config("sdar_mode", Field::bits(50, 51)),
            config("ifm", EventCode::IFM),
            config("bhrb", EventCode::BHRB),
            config("ebb", EventCode::EBB),
        ],
    };

    /// Power ISA v3.1: POWER10 and Power11.
    pub(super) const V31: Layout = Layout {
        combine: Field::bits(10, 11),
        cache_sel: Field::bits(20, 21),
        sdar_mode: Field::bits(22, 23),
        thresh_cmp: Field::NONE,
        thresh_cmp_config1: Field::bits(0, 17),
        radix_scope: Field::bits(9, 9),
        l2l3_sel: Field::bits(40, 44),
        source: Field::bits(45, 59),
        formats: &[
            config("event", Field::bits(0, 59)),
            config("pmcxsel", EventCode::PMCXSEL),
            config("mark", EventCode::MARK),
            config("radix_scope", Field::bits(9, 9)),
            config("combine", Field::bits(10, 11)),
            config("unit", EventCode::UNIT),
            config("pmc", EventCode::PMC),
            config("cache_sel", Field::bits(20, 21)),
            config("sdar_mode", Field::bits(22, 23)),
            config("sample_mode", EventCode::SAMPLE_MODE),
            config("thresh_sel", EventCode::THRESH_SEL),
            config("thresh_stop", EventCode::THRESH_STOP),
            config("thresh_start", EventCode::THRESH_START),
            config("l2l3_sel", Field::bits(40, 44)),
            config("src_sel", Field::bits(45, 46)),
            config("invert_bit", Field::bits(47, 47)),
            config("src_mask", Field::bits(48, 53)),
            config("src_match", Field::bits(54, 59)),
            FormatField {
                name: "thresh_cmp",
                word: ConfigWord::Config1,
                field: Field::bits(0, 17),
            },
            config("ifm", EventCode::IFM),
            config("bhrb", EventCode::BHRB),
            config("ebb", EventCode::EBB),
        ],
    };

    /// The bits of `attr.config` that belong to a field; all others are
    /// reserved.
    pub(super) const fn config_mask(&self) -> u64 {
        EventCode::PMCXSEL.mask()
            | EventCode::MARK.mask()
            | EventCode::UNIT.mask()
            | EventCode::PMC.mask()
            | EventCode::SAMPLE_MODE.mask()
            | EventCode::THRESH_SEL.mask()
            | EventCode::THRESH_CTL.mask()
            | EventCode::IFM.mask()
            | EventCode::BHRB.mask()
            | EventCode::EBB.mask()
            | self.combine.mask()
            | self.cache_sel.mask()
            | self.sdar_mode.mask()
            | self.thresh_cmp.mask()
            | self.radix_scope.mask()
            | self.l2l3_sel.mask()
            | self.source.mask()
    }
}

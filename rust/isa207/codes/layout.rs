// SPDX-License-Identifier: GPL-2.0

//! The positions of an event code's fields in each generation. Decoding, the check for reserved
//! bits and the files of sysfs `format/` all use one [`Layout`].
//!
//! Sources: the comments "Raw event encoding" in `arch/powerpc/perf/power{8,9,10,12}-pmu.c` and
//! `generic-compat-pmu.c`.

use super::{
    event_code::EventCode,
    field::Field, //
};

/// The word of `perf_event_attr` that contains a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigWord {
    /// `attr.config`
    Config,
    /// `attr.config1`
    Config1,
}

impl ConfigWord {
    /// Returns the word's name in `format/` files.
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
    /// The field's bits in the word.
    pub field: Field,
}

/// Returns a field of `attr.config`.
const fn config(name: &'static str, field: Field) -> FormatField {
    FormatField {
        name,
        word: ConfigWord::Config,
        field,
    }
}

/// The fields that differ between generations. A field that the generation does not have is
/// [`Field::NONE`].
#[derive(Debug)]
pub(crate) struct Layout {
    /// The bits of `attr.config` that reach the hardware.
    event: Field,
    /// PMCxCOMB: how the bits of the unit's event bus are combined.
    pub(crate) combine: Field,
    /// Cache select: the source qualifier of L1 reloads; on POWER8 also a group of L2 and L3
    /// events.
    pub(crate) cache_sel: Field,
    /// When SDAR is updated in continuous sampling.
    pub(crate) sdar_mode: Field,
    /// Threshold to compare with, in `attr.config`: exponent and mantissa.
    pub(crate) thresh_cmp: Field,
    /// Threshold to compare with, in `attr.config1`: a plain number.
    pub(crate) thresh_cmp_config1: Field,
    /// Qualifies the scope of radix translation events.
    pub(crate) radix_scope: Field,
    /// Group of L2 and L3 events that the unit's bus carries.
    pub(crate) l2l3_sel: Field,
    /// Data source to match: the 15 bits of a counter's MMCR3 field.
    pub(crate) source: Field,
    /// Codes have only the architected fields (PMCxSEL and the counter) and Linux's own bits.
    architected: bool,
    /// The bits of `attr.config` that belong to a field; the others are reserved.
    pub(crate) config_mask: u64,
    /// The files of `format/`. A field that only other generations have is [`Field::NONE`].
    pub(crate) formats: [FormatField; Self::FORMATS],
}

impl Layout {
    /// Number of named fields over all generations.
    const FORMATS: usize = 23;

    /// A layout with only the fields that all generations have ([`EventCode`]).
    const COMMON: Layout = Layout {
        event: Field::NONE,
        combine: Field::NONE,
        cache_sel: Field::NONE,
        sdar_mode: Field::NONE,
        thresh_cmp: Field::NONE,
        thresh_cmp_config1: Field::NONE,
        radix_scope: Field::NONE,
        l2l3_sel: Field::NONE,
        source: Field::NONE,
        architected: false,
        config_mask: 0,
        formats: [config("", Field::NONE); Self::FORMATS],
    };

    /// Power ISA v2.07: POWER8.
    pub(crate) const V207: Layout = Layout {
        event: Field::bits(0, 49),
        combine: Field::bits(11, 11),
        cache_sel: Field::bits(20, 23),
        thresh_cmp: Field::bits(40, 49),
        ..Self::COMMON
    }
    .with_formats();

    /// Power ISA v3.0: POWER9.
    pub(crate) const V300: Layout = Layout {
        event: Field::bits(0, 51),
        combine: Field::bits(10, 11),
        sdar_mode: Field::bits(50, 51),
        ..Self::V207
    }
    .with_formats();

    /// Power ISA v3.1: POWER10 to Power12.
    pub(crate) const V31: Layout = Layout {
        event: Field::bits(0, 59),
        radix_scope: Field::bits(9, 9),
        combine: Field::bits(10, 11),
        cache_sel: Field::bits(20, 21),
        sdar_mode: Field::bits(22, 23),
        l2l3_sel: Field::bits(40, 44),
        source: Field::bits(45, 59),
        thresh_cmp_config1: Field::bits(0, 17),
        ..Self::COMMON
    }
    .with_formats();

    /// The fields that all processors of Power ISA v3.0 and later have.
    pub(crate) const ARCHITECTED: Layout = Layout {
        event: Field::bits(0, 19),
        architected: true,
        ..Self::COMMON
    }
    .with_formats();

    /// Returns `field`, or [`Field::NONE`] if codes have only the architected fields.
    const fn implemented(&self, field: Field) -> Field {
        if self.architected {
            Field::NONE
        } else {
            field
        }
    }

    /// Computes the files of `format/` and the mask from the fields.
    const fn with_formats(mut self) -> Self {
        self.formats = [
            config("event", self.event),
            config("pmcxsel", EventCode::PMCXSEL),
            config("mark", self.implemented(EventCode::MARK)),
            config("radix_scope", self.radix_scope),
            config("combine", self.combine),
            config("unit", self.implemented(EventCode::UNIT)),
            config("pmc", EventCode::PMC),
            config("cache_sel", self.cache_sel),
            config("sdar_mode", self.sdar_mode),
            config("sample_mode", self.implemented(EventCode::SAMPLE_MODE)),
            config("thresh_sel", self.implemented(EventCode::THRESH_SEL)),
            config("thresh_stop", self.implemented(EventCode::THRESH_STOP)),
            config("thresh_start", self.implemented(EventCode::THRESH_START)),
            config("thresh_cmp", self.thresh_cmp),
            config("l2l3_sel", self.l2l3_sel),
            config("src_sel", self.source.part(0, 1)),
            config("invert_bit", self.source.part(2, 2)),
            config("src_mask", self.source.part(3, 8)),
            config("src_match", self.source.part(9, 14)),
            config("ifm", EventCode::IFM),
            config("bhrb", EventCode::BHRB),
            config("ebb", EventCode::EBB),
            FormatField {
                name: "thresh_cmp",
                word: ConfigWord::Config1,
                field: self.thresh_cmp_config1,
            },
        ];
        // "event" covers the whole code, including reserved bits.
        let [_event, rest @ ..] = &self.formats;
        let mut rest: &[FormatField] = rest;
        self.config_mask = 0;
        while let [format, tail @ ..] = rest {
            if matches!(format.word, ConfigWord::Config) {
                self.config_mask |= format.field.mask();
            }
            rest = tail;
        }
        self
    }
}

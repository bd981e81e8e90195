// SPDX-License-Identifier: GPL-2.0

//! The event code: perf's `attr.config` with names for its fields.
//!
//! This file has the fields whose position is the same on every CPU. The fields that moved
//! (combine, cache select, threshold compare, SDAR mode, and the new ones of POWER10) are read
//! through the CPU's [`Layout`](super::layout::Layout).
//!
//! Source: `arch/powerpc/perf/isa207-common.h`; for bits 60 to 63, which never reach the hardware,
//! `Documentation/arch/powerpc/pmu-ebb.rst`.

use super::field::Field;

/// A raw event code as given in `attr.config`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCode(pub u64);

impl EventCode {
    /// PMCxSEL: selects the event of the unit.
    pub(crate) const PMCXSEL: Field = Field::bits(0, 7);
    /// Marked event: counts only instructions that random sampling has marked.
    pub(crate) const MARK: Field = Field::bits(8, 8);
    /// PMCxUNIT: selects the unit whose events the counter can count.
    pub(crate) const UNIT: Field = Field::bits(12, 15);
    /// The counter, 1 to 6; 0 for any of PMC1 to PMC4.
    pub(crate) const PMC: Field = Field::bits(16, 19);
    /// Random sampling: eligibility (three bits) and mode (two bits).
    pub(crate) const SAMPLE_MODE: Field = Field::bits(24, 28);
    /// THRESH_SEL: selects the events that the threshold counter counts; 0 for an event without
    /// threshold.
    pub(crate) const THRESH_SEL: Field = Field::bits(29, 31);
    /// The event that stops the threshold counter.
    pub(crate) const THRESH_STOP: Field = Field::bits(32, 35);
    /// The event that starts the threshold counter.
    pub(crate) const THRESH_START: Field = Field::bits(36, 39);
    /// Threshold start and stop as the one byte they form in MMCRA; in POWER8's fabric response
    /// events, the value to match.
    pub(crate) const THRESH_CTL: Field = Field::bits(32, 39);
    /// BHRB filter of an EBB event (MMCRA\[IFM\]).
    pub(crate) const IFM: Field = Field::bits(60, 61);
    /// The EBB event uses the BHRB.
    pub(crate) const BHRB: Field = Field::bits(62, 62);
    /// The event raises event-based branches.
    pub(crate) const EBB: Field = Field::bits(63, 63);

    /// The fields that most events use. PMCxCOMB (bits 10 and 11) is among them.
    const PLAIN: u64 = Self::PMCXSEL.mask()
        | Field::bits(10, 11).mask()
        | Self::UNIT.mask()
        | Self::PMC.mask()
        | Self::EBB.mask();

    /// Returns whether the code uses none of the rare fields: random sampling, thresholds, cache
    /// selects and so on.
    #[inline]
    pub(crate) const fn is_plain(self) -> bool {
        self.0 & !Self::PLAIN == 0
    }

    /// Returns the code without Linux's own bits 60 to 63.
    pub const fn hardware(self) -> Self {
        Self(self.0 & !(Self::IFM.mask() | Self::BHRB.mask() | Self::EBB.mask()))
    }

    /// Returns PMCxSEL, 0 to 0xff.
    pub const fn pmcxsel(self) -> u64 {
        Self::PMCXSEL.get(self.0)
    }

    /// Returns whether the event counts only marked instructions.
    pub const fn is_marked(self) -> bool {
        Self::MARK.is_set(self.0)
    }

    /// Returns the unit, 0 to 15.
    pub const fn unit(self) -> u64 {
        Self::UNIT.get(self.0)
    }

    /// Returns the counter field: 0 for any of PMC1 to PMC4. It may be up to 15, but only 1 to 6
    /// exist.
    pub const fn pmc(self) -> u64 {
        Self::PMC.get(self.0)
    }

    /// Returns eligibility (three bits) and mode (two bits) of random sampling.
    pub const fn sample_mode(self) -> u64 {
        Self::SAMPLE_MODE.get(self.0)
    }

    /// Returns the threshold counter's select, 0 to 7; 0 for an event without threshold.
    pub const fn thresh_sel(self) -> u64 {
        Self::THRESH_SEL.get(self.0)
    }

    /// Returns the event that starts the threshold counter, 0 to 15.
    pub const fn thresh_start(self) -> u64 {
        Self::THRESH_START.get(self.0)
    }

    /// Returns the event that stops the threshold counter, 0 to 15.
    pub const fn thresh_stop(self) -> u64 {
        Self::THRESH_STOP.get(self.0)
    }

    /// Returns whether the event raises event-based branches.
    pub const fn is_ebb(self) -> bool {
        Self::EBB.is_set(self.0)
    }

    /// Returns whether the EBB event uses the BHRB.
    pub const fn wants_bhrb(self) -> bool {
        Self::BHRB.is_set(self.0)
    }

    /// Returns the BHRB filter of an EBB event, 0 to 3.
    pub const fn ifm(self) -> u64 {
        Self::IFM.get(self.0)
    }
}

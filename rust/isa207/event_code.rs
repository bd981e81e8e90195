// SPDX-License-Identifier: GPL-2.0

//! The event code: perf's `attr.config` with names for its fields.
//!
//! Only the fields that lie at the same place on every CPU have accessors here;
//! those that moved (combine, cache select, threshold compare, SDAR mode, and
//! what POWER10 added) are read through the CPU's [`Layout`](super::layout).
//!
//! Bits 60 to 63 never reach the hardware: they are Linux's requests around
//! event based branches (`Documentation/arch/powerpc/pmu-ebb.rst`).

use super::layout::Field;

/// A raw event code as given in `attr.config`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCode(pub u64);

impl EventCode {
    /// Which event of the unit the counter counts (PMCxSEL).
    pub(super) const PMCXSEL: Field = Field::bits(0, 7);
    /// Count marked (randomly sampled) instructions only.
    pub(super) const MARK: Field = Field::bits(8, 8);
    /// The unit whose event bus the counter listens to (PMCxUNIT).
    pub(super) const UNIT: Field = Field::bits(12, 15);
    /// The counter, 1 to 6; 0 leaves the choice of PMC1 to PMC4 open.
    pub(super) const PMC: Field = Field::bits(16, 19);
    /// Which instructions may be marked, and when: eligibility and mode.
    pub(super) const SAMPLE_MODE: Field = Field::bits(24, 28);
    /// What the threshold counter counts; 0 switches thresholds off.
    pub(super) const THRESH_SEL: Field = Field::bits(29, 31);
    /// The event that stops the threshold counter.
    pub(super) const THRESH_STOP: Field = Field::bits(32, 35);
    /// The event that starts the threshold counter.
    pub(super) const THRESH_START: Field = Field::bits(36, 39);
    /// Threshold start and stop as the one byte they form in MMCRA, or on
    /// POWER8 the match value of the two fabric response events.
    pub(super) const THRESH_CTL: Field = Field::bits(32, 39);
    /// BHRB filter of an EBB event.
    pub(super) const IFM: Field = Field::bits(60, 61);
    /// The EBB event wants the BHRB.
    pub(super) const BHRB: Field = Field::bits(62, 62);
    /// The event is to raise event based branches.
    pub(super) const EBB: Field = Field::bits(63, 63);

    /// The code without Linux's own bits 60 to 63: what the hardware is asked.
    pub const fn hardware(self) -> Self {
        Self(self.0 & !(Self::IFM.mask() | Self::BHRB.mask() | Self::EBB.mask()))
    }

    /// PMCxSEL, 0 to 0xff.
    pub const fn pmcxsel(self) -> u64 {
        Self::PMCXSEL.of(self.0)
    }

    /// Whether only marked instructions count.
    pub const fn is_marked(self) -> bool {
        Self::MARK.is_set(self.0)
    }

    /// The unit, 0 to 15.
    pub const fn unit(self) -> u64 {
        Self::UNIT.of(self.0)
    }

    /// The number in the counter field: 0 (any of PMC1 to PMC4) to 15, of which
    /// only 1 to 6 exist.
    pub const fn pmc(self) -> u64 {
        Self::PMC.of(self.0)
    }

    /// Eligibility (three bits) and mode (two bits) of random sampling.
    pub const fn sample_mode(self) -> u64 {
        Self::SAMPLE_MODE.of(self.0)
    }

    /// What the threshold counter counts, 0 to 7; 0 for an event without one.
    pub const fn thresh_sel(self) -> u64 {
        Self::THRESH_SEL.of(self.0)
    }

    /// The event that starts the threshold counter, 0 to 15.
    pub const fn thresh_start(self) -> u64 {
        Self::THRESH_START.of(self.0)
    }

    /// The event that stops the threshold counter, 0 to 15.
    pub const fn thresh_stop(self) -> u64 {
        Self::THRESH_STOP.of(self.0)
    }

    /// Whether the event is to raise event based branches.
    pub const fn is_ebb(self) -> bool {
        Self::EBB.is_set(self.0)
    }

    /// Whether the EBB event wants the BHRB.
    pub const fn wants_bhrb(self) -> bool {
        Self::BHRB.is_set(self.0)
    }

    /// BHRB filter of an EBB event, 0 to 3.
    pub const fn ifm(self) -> u64 {
        Self::IFM.of(self.0)
    }
}

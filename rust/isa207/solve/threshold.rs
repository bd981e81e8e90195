// SPDX-License-Identifier: GPL-2.0

//! Thresholds: a counter in the PMU runs between two events, and an event counts only if the
//! counter exceeded a value. Example: loads that took longer than 1,000 cycles.
//!
//! The value to compare with is mantissa * 4^exponent. Up to POWER9 the event code holds these
//! two; on POWER10 `attr.config1` holds a plain number.
//!
//! Sources: MMCRA in the POWER8, POWER9 and POWER10 Performance Monitor Unit User's Guides;
//! `thresh_cmp_val()` and `p10_thresh_cmp_val()` in the kernel's
//! `arch/powerpc/perf/isa207-common.c`.

use super::super::{
    codes::event_code::EventCode,
    isa::Isa,
    models::model::CpuModel,
    refusal::Refusal,
    registers::{
        mmcra_thr_cmp,
        MMCRA_THR_CTL,
        MMCRA_THR_SEL, //
    }, //
};

/// The largest value that POWER10's exponent and mantissa can hold.
const LARGEST: u64 = 255 << 10;

/// The threshold settings of an event; all 0 for an event without one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Threshold {
    /// THRESH_SEL, three bits: selects the events that the threshold counter counts.
    select: u64,
    /// Start and stop event, four bits each.
    control: u64,
    /// Exponent (three bits) and mantissa (seven, on POWER10 eight).
    compare: u64,
}

impl Threshold {
    /// Returns the threshold settings of a request for `code` with `config1`, which must be valid
    /// ([`Threshold::validate`]).
    #[inline]
    pub(super) fn new(model: &CpuModel, code: EventCode, config1: u64) -> Self {
        if model.is_fab_match(code) {
            return Self::default();
        }
        Self {
            select: code.thresh_sel(),
            control: EventCode::THRESH_CTL.get(code.0),
            compare: match model.isa {
                Isa::V207 | Isa::V300 => model.layout.thresh_cmp.get(code.0),
                Isa::V31 => from_number(config1),
            },
        }
    }

    /// Refuses reserved values, and threshold settings without a threshold select.
    #[inline]
    pub(super) fn validate(model: &CpuModel, code: EventCode, config1: u64) -> Result<(), Refusal> {
        let compare = model.layout.thresh_cmp.get(code.0);
        if model.is_fab_match(code) {
            return if code.thresh_sel() == 0 && compare == 0 {
                Ok(())
            } else {
                Err(Refusal::ThresholdOnFabMatch)
            };
        }
        let (start, stop) = (code.thresh_start(), code.thresh_stop());
        if model.isa >= Isa::V300 && (start == 15 || stop == 15) {
            return Err(Refusal::ThresholdEventReserved);
        }
        if code.thresh_sel() == 0 && (start | stop | compare | config1) != 0 {
            return Err(Refusal::ThresholdWithoutSelect);
        }
        // A value that fits with a smaller exponent must be given with that exponent. POWER10's
        // plain number always satisfies this rule.
        let exponent = compare >> 7;
        if exponent != 0 && compare & 0x60 == 0 {
            return Err(Refusal::ThresholdMantissa);
        }
        Ok(())
    }

    /// Returns the settings as one number of 22 bits.
    pub(super) const fn packed(self) -> u64 {
        self.select | self.control << 3 | self.compare << 11
    }

    /// Returns the settings in their MMCRA fields.
    pub(super) const fn mmcra(self, isa: Isa) -> u64 {
        MMCRA_THR_SEL.prep(self.select)
            | MMCRA_THR_CTL.prep(self.control)
            | mmcra_thr_cmp(isa).prep(self.compare)
    }
}

/// Converts a plain number to POWER10's exponent (bits 8 to 10) and mantissa (below).
///
/// Replaces a number above [`LARGEST`] by that value, as the in-tree driver does. Rounds down what
/// the mantissa cannot hold.
fn from_number(number: u64) -> u64 {
    let mut mantissa = number.min(LARGEST);
    let mut exponent: u64 = 0;
    while mantissa > 0xff {
        mantissa >>= 2;
        exponent = exponent.wrapping_add(1);
    }
    exponent << 8 | mantissa
}

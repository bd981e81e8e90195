// SPDX-License-Identifier: GPL-2.0

//! Thresholds: a counter in the PMU that runs between two events and tells the
//! events that ask for it when it went beyond a value, for instance loads that
//! took longer than 1,000 cycles.
//!
//! The value to compare with is kept as exponent and mantissa, standing for
//! mantissa * 4^exponent. Up to POWER9 the event code holds it in that form;
//! on POWER10 `attr.config1` holds a plain number.
//!
//! Sources: MMCRA in the POWER8, POWER9 and POWER10 Performance Monitor Unit
//! User's Guides.

use super::{
    cpu::{
        CpuModel,
        Isa, //
    },
    event_code::EventCode,
    layout::Field,
    refusal::Refusal,
    request::Request, //
};

/// MMCRA\[45:47\]: what the threshold counter counts.
const SELECT: Field = Field::ibm(45, 47);
/// MMCRA\[48:55\]: the events that start and stop it.
const CONTROL: Field = Field::ibm(48, 55);

/// The largest value that has a form on POWER10.
const LARGEST: u64 = 255 << 10;

/// The threshold settings of an event; all 0 for an event without one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Threshold {
    /// What the threshold counter counts, three bits.
    select: u64,
    /// Start and stop event, four bits each.
    control: u64,
    /// Exponent (three bits) and mantissa (seven, on POWER10 eight).
    compare: u64,
}

impl Threshold {
    /// The threshold settings of `req`, whose code was checked.
    pub(super) fn new(cpu: &CpuModel, req: &Request) -> Self {
        let code = req.event_code();
        if cpu.is_fab_match(code) {
            return Self::default();
        }
        Self {
            select: code.thresh_sel(),
            control: EventCode::THRESH_CTL.of(code.0),
            compare: match cpu.isa {
                Isa::V207 | Isa::V300 => cpu.layout.thresh_cmp.of(code.0),
                Isa::V31 => from_number(req.config1),
            },
        }
    }

    /// Refuses reserved values and settings that nothing would read.
    pub(super) fn check(cpu: &CpuModel, req: &Request) -> Result<(), Refusal> {
        let code = req.event_code();
        let compare = cpu.layout.thresh_cmp.of(code.0);
        if cpu.is_fab_match(code) {
            return if code.thresh_sel() == 0 && compare == 0 {
                Ok(())
            } else {
                Err(Refusal::ThresholdOnFabMatch)
            };
        }
        let events = [code.thresh_start(), code.thresh_stop()];
        if cpu.isa >= Isa::V300 && events.contains(&15) {
            return Err(Refusal::ThresholdEventReserved);
        }
        if code.thresh_sel() == 0 && (events != [0, 0] || compare != 0 || req.config1 != 0) {
            return Err(Refusal::ThresholdWithoutSelect);
        }
        // A value with a smaller exponent would have to be given with that.
        // POWER10's plain number always has a valid form.
        let exponent = compare >> 7;
        if exponent != 0 && compare & 0x60 == 0 {
            return Err(Refusal::ThresholdMantissa);
        }
        Ok(())
    }

    /// The settings as one number of 22 bits.
    pub(super) const fn packed(self) -> u64 {
        self.select | self.control << 3 | self.compare << 11
    }

    /// The settings in their places in MMCRA.
    pub(super) const fn mmcra(self, isa: Isa) -> u64 {
        let compare = match isa {
            Isa::V207 => Field::ibm(22, 31),
            Isa::V300 => Field::ibm(9, 18),
            Isa::V31 => Field::ibm(8, 18),
        };
        SELECT.put(self.select) | CONTROL.put(self.control) | compare.put(self.compare)
    }
}

/// POWER10's form of a plain number: exponent in bits 8 to 10, mantissa below.
///
/// A number above the largest one that has a form stands for that, as in the
/// in-tree driver; what the mantissa has no room for is rounded down.
fn from_number(number: u64) -> u64 {
    let mut mantissa = number.min(LARGEST);
    let mut exponent: u64 = 0;
    while mantissa > 0xff {
        mantissa >>= 2;
        exponent = exponent.wrapping_add(1);
    }
    exponent << 8 | mantissa
}

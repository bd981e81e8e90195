// SPDX-License-Identifier: GPL-2.0

//! The processors' PMU models, one file each, and the choice of the model.

mod architected;
pub(super) mod model;
mod power10;
mod power11;
mod power12;
mod power8;
mod power9;

use super::isa::Isa;
use model::CpuModel;

impl CpuModel {
    /// Returns the model of the processor with this processor version register.
    ///
    /// The upper half of the PVR identifies the processor, the lower half the revision, on which
    /// tables and blacklists depend. Returns `None` for a processor without a model, including the
    /// logical PVRs of compatibility mode (`0x0f......`).
    pub fn from_pvr(pvr: u32) -> Option<&'static CpuModel> {
        Some(match pvr >> 16 {
            // POWER8E, POWER8NVL, POWER8
            0x004b..=0x004d => &power8::POWER8,
            0x004e => power9::revision(pvr),
            0x0080 => power10::revision(pvr),
            0x0082 => &power11::POWER11,
            0x0083 => &power12::POWER12,
            _ => return None,
        })
    }

    /// Returns the model for a processor that has none of its own and implements `isa` or a later
    /// version: the events that the ISA itself defines. Returns `None` before v3.0, which defines
    /// fewer events.
    pub fn architected(isa: Isa) -> Option<&'static CpuModel> {
        match isa {
            Isa::V207 => None,
            Isa::V300 => Some(&architected::V300),
            Isa::V31 => Some(&architected::V31),
        }
    }
}

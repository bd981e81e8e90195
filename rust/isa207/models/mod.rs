// SPDX-License-Identifier: GPL-2.0

//! The processors' PMU models, one file each, and which processor has which.

pub(super) mod model;
mod power10;
mod power11;
mod power8;
mod power9;

use model::CpuModel;

impl CpuModel {
    /// The model of the processor with this processor version register.
    ///
    /// The upper half of the PVR is the processor, the lower half the revision, on which tables
    /// and blacklists depend. `None` for a processor without a model, among them the logical PVRs
    /// of compatibility mode (`0x0f......`).
    pub fn from_pvr(pvr: u32) -> Option<&'static CpuModel> {
        Some(match pvr >> 16 {
            // POWER8E, POWER8NVL, POWER8
            0x004b..=0x004d => &power8::POWER8,
            0x004e => power9::revision(pvr),
            0x0080 => power10::revision(pvr),
            0x0082 => &power11::POWER11,
            _ => return None,
        })
    }
}

// SPDX-License-Identifier: GPL-2.0

//! Groups that are scheduled in with a negative counter. Their program may have enabled alerts
//! while another of its groups was on the PMU. Then an alert occurs as the kernel writes MMCR0,
//! except on POWER8 and POWER8E, and the program gets its EBB when the kernel returns to it.

use super::{Program, of_sample};
use pmu_model::{Facility, mmcr0, spr};

impl Program {
    /// Copies the registers that describe the instruction of such an alert, which is one of the
    /// kernel (`Documentation/internals.md`, Limitations). The kernel has written `restored` as the
    /// program's bits of MMCR0.
    pub(super) fn find_alert_of_kernel(&mut self, facility: &Facility, restored: u64) {
        let is_alert = restored & !self.own.mfspr(spr::MMCR0) & mmcr0::PMAE != 0;
        if !is_alert {
            return;
        }
        let siar = facility.mfspr(spr::SIAR);
        let is_of_kernel = siar >> 63 != 0;
        assert!(
            is_of_kernel,
            "SIAR of a group that is scheduled in: {siar:#x}"
        );
        for number in of_sample(self.own.processor()) {
            self.own.mtspr(*number, facility.mfspr(*number));
        }
        if let Some(predicted) = &mut self.predicted {
            predicted.lose(spr::SIAR, siar);
        }
    }
}

// SPDX-License-Identifier: GPL-2.0

//! Checks of SIAR, SDAR, SIER, SIER2 and SIER3, as a program with an EBB group finds them.

use super::{Program, of_sample, user};
use crate::machine::{KERNEL_TEXT, was_probed};
use pmu_model::{Facility, identifying_bits, mmcra, sier, spr};

impl Program {
    /// Checks SDAR. If it is undefined, the program may find an address of its own data or of the
    /// kernel's (`Documentation/internals.md`, Limitations), but none of another program's.
    fn check_sdar(&self, facility: &Facility) {
        let [found, own] = [facility, &self.own].map(|of| of.mfspr(spr::SDAR));
        let is_known = self.own.is_known(spr::SDAR);
        let is_right = found == own
            || !is_known && (found == 0 || found >> 63 != 0 || self.data.contains(&found));
        assert!(
            is_right,
            "SDAR of the program is {found:#x}, its own {own:#x}"
        );
    }

    /// Checks the registers that describe the sampled instruction. A register that is undefined may
    /// describe an instruction of the program or of the kernel, but none of another program.
    pub(super) fn check_sample(&self, facility: &Facility) {
        self.check_sdar(facility);
        // A kernel instruction that the PMU marked is described in more detail.
        let is_marking = facility.mfspr(spr::MMCRA) & mmcra::SAMPLE_ENABLE != 0;
        let is_of_kernel = is_marking && facility.mfspr(spr::SIAR) >> 63 != 0;
        for number in of_sample(facility.processor()) {
            let [found, own] = [facility, &self.own].map(|of| of.problem_mfspr(user(*number)));
            let is_right = match (*number, found) {
                (spr::SDAR, _) => true,
                _ if found == own => true,
                (_, Ok(found)) if !self.own.is_known(*number) => match *number {
                    spr::SIAR => found == 0 || found >> 63 != 0 || self.text.contains(&found),
                    _ => is_of_kernel || self.may_describe(*number, found),
                },
                _ => false,
            };
            assert!(is_right, "SPR {number} is {found:x?}, its own {own:x?}");
        }
    }

    /// Returns whether a value of SIER, SIER2 or SIER3 may describe an instruction of the program
    /// or of the kernel. SIER may mark any register as valid.
    fn may_describe(&self, number: u32, found: u64) -> bool {
        let bits = match number {
            spr::SIER => found & !(sier::SIARV | sier::SDARV),
            _ => found,
        };
        let kernel = identifying_bits(KERNEL_TEXT)..=identifying_bits(KERNEL_TEXT | 0xffc);
        bits == 0
            || kernel.contains(&bits)
            || self.text.iter().any(|at| identifying_bits(*at) == bits)
    }

    /// Copies SIAR and SDAR if a probe has changed them, which the kernel stepped over while the
    /// program's task was the current one.
    pub(super) fn lose_sample(&mut self, task: usize, facility: &Facility) {
        for number in [spr::SIAR, spr::SDAR] {
            let found = facility.mfspr(number);
            if was_probed(found, task) {
                self.own.mtspr(number, found);
                if let Some(predicted) = &mut self.predicted {
                    predicted.lose(number, found);
                }
            }
        }
    }
}

// SPDX-License-Identifier: GPL-2.0

//! SIAR, SDAR and SIER: the instruction that is sampled.
//!
//! What SIER says beyond valid and privilege bits, and SIER2 and SIER3, stay as they are written.

use crate::{
    Context, Facility, Instruction,
    fields::{mmcr0, mmcra, sier},
};

impl Facility {
    /// An alert samples the instruction that completed last, unless random sampling is on: then
    /// the last marked one stays.
    ///
    /// \[microwatt\] `pmu_1`, also for the valid bits; \[kernel\] `asm/reg.h`, `siar_valid()`.
    /// Hardware may take another instruction near that one. That SIAR does not change while PMAE
    /// is 0, so not after an alert: \[memory\] Book III, SIAR.
    pub(crate) fn sample_alert(&mut self) {
        if self.mmcra & mmcra::SAMPLE_ENABLE == 0 {
            let (instruction, context) = self.last;
            self.sample(&instruction, context);
        }
    }

    /// Random sampling: a marked instruction is sampled as it completes, while alerts are enabled.
    ///
    /// \[kernel\] `isa207-common.c` for SAMPLE_ENABLE, `siar_valid()` for SIARV; \[memory\] for
    /// PMAE.
    pub(crate) fn sample_marked(&mut self, instruction: &Instruction) {
        let on = self.mmcra & mmcra::SAMPLE_ENABLE != 0 && self.mmcr0 & mmcr0::PMAE != 0;
        if on && instruction.marked {
            self.sample(instruction, self.context);
        }
    }

    fn sample(&mut self, instruction: &Instruction, context: Context) {
        self.siar = instruction.address;
        self.sdar = instruction.data.unwrap_or(self.sdar);
        let bits = [
            (
                context.problem && self.processor.has_reliable_sipr(),
                sier::SIPR,
            ),
            (
                context.hypervisor && self.processor.has_reliable_sipr(),
                sier::SIHV,
            ),
            (true, sier::SIARV),
            (instruction.data.is_some(), sier::SDARV),
        ];
        let set = bits.into_iter().filter(|(set, _)| *set);
        self.sier = set.fold(0, |value, (_, bit)| value | bit);
    }
}

#[cfg(test)]
mod tests {
    use crate::{Context, Facility, Instruction, Processor, mmcr0::*, mmcra, sier::*, spr};

    /// Executes instructions of which the second causes an alert.
    fn sampled(processor: Processor, mmcra: u64, context: Context) -> [u64; 3] {
        let mut facility = Facility::new(processor);
        facility.mtspr(spr::MMCRA, mmcra);
        facility.mtspr(spr::PMC6, 0x7fff_fffe);
        facility.mtspr(spr::MMCR0, PMAE | PMCJCE);
        facility.context = context;
        let marked = Instruction {
            marked: true,
            ..Instruction::at(0x1000)
        };
        facility.execute(&marked);
        facility.execute(&Instruction {
            data: Some(0x8000),
            ..Instruction::at(0x1004)
        });
        // Alerts are off now.
        facility.execute(&Instruction {
            address: 0x1008,
            ..marked
        });
        [spr::SIAR, spr::SDAR, spr::SIER].map(|number| facility.mfspr(number))
    }

    #[test]
    fn an_alert_samples_its_instruction() {
        for processor in Processor::ALL {
            let sipr = if processor.has_reliable_sipr() {
                SIPR
            } else {
                0
            };
            let sihv = if processor.has_reliable_sipr() {
                SIHV
            } else {
                0
            };
            let valid = SIARV | SDARV;
            for (context, privilege) in [
                (Context::PROGRAM, sipr),
                (Context::KERNEL, 0),
                (Context::HYPERVISOR, sihv),
            ] {
                let sampled = sampled(processor, 0, context);
                assert_eq!(sampled, [0x1004, 0x8000, valid | privilege]);
            }
        }
    }

    #[test]
    fn random_sampling_keeps_the_marked_instruction() {
        let sampled = sampled(Processor::Power9, mmcra::SAMPLE_ENABLE, Context::PROGRAM);
        assert_eq!(sampled, [0x1000, 0, SIARV | SIPR]);
    }
}

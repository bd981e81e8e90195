// SPDX-License-Identifier: GPL-2.0

//! SIAR, SDAR and SIER: the sampled instruction.
//!
//! SIER, SIER2 and SIER3 describe it: a marked instruction in the fields that the manuals name, any
//! other one in implementation-specific bits.

use crate::{
    Context, Facility, Instruction, Isa, Mark,
    fields::{mmcr0, mmcra, sier, spr},
};

/// The registers that describe the sampled instruction.
const SAMPLED: [u32; 5] = [spr::SIAR, spr::SDAR, spr::SIER, spr::SIER2, spr::SIER3];

/// Set of the sampling registers that hold the value of an alert or of software. The others are
/// undefined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known([bool; SAMPLED.len()]);

impl Known {
    /// All sampling registers.
    pub(crate) const ALL: Self = Self([true; SAMPLED.len()]);
    /// No register.
    pub(crate) const NONE: Self = Self([false; SAMPLED.len()]);

    /// Adds the register with this number, if it is a sampling register.
    pub(crate) fn add(&mut self, number: u32) {
        self.set(number, true);
    }

    /// Removes the register with this number.
    pub(crate) fn remove(&mut self, number: u32) {
        self.set(number, false);
    }

    fn set(&mut self, number: u32, is_known: bool) {
        if let Some(at) = SAMPLED.iter().position(|of| *of == number) {
            self.0[at] = is_known;
        }
    }

    /// Returns whether the set contains the register with this number.
    fn has(&self, number: u32) -> bool {
        let at = SAMPLED.iter().position(|of| *of == number);
        at.is_some_and(|at| self.0[at])
    }
}

/// Bits of SIER, SIER2 and SIER3 that describe an instruction even if it is not marked.
const OF_ANY_INSTRUCTION: u64 = (1 << 21) - 1;

/// Returns the value of these bits for the instruction at an address. They identify bits 0x7ffc of
/// the address and its MiB modulo 256.
pub fn identifying_bits(address: u64) -> u64 {
    (address >> 2 & 0x1fff | (address >> 20 & 0xff) << 13) & OF_ANY_INSTRUCTION
}

impl Facility {
    /// Lets continuous sampling update SDAR at any time, even with the counters frozen and alerts
    /// disabled.
    ///
    /// According to the ISA hardware alters SDAR only while PMAE is 1, so never after an alert
    /// (\[memory\] Book III, SDAR). \[KVM\] contradicts that: `kvmhv_save_guest_pmu` and
    /// `kvmhv_save_host_pmu` freeze the counters and disable alerts, and then clear MMCRA "in order
    /// to disable SDAR updates" before they read it. No code may rely on either behaviour.
    pub fn let_sdar_change(&mut self) {
        self.sdar_changes = true;
    }

    /// Does the continuous sampling for an instruction: SDAR gets the address of the last access
    /// that missed a cache or the TLB, as SDAR_MODE selects, in any state of the thread. Here any
    /// access may set it.
    ///
    /// \[kernel\] `mmcra_sdar_mode()` in `isa207-common.c`: "how the SDAR should be updated in
    /// continuous sampling mode"; [`Facility::let_sdar_change`].
    ///
    /// SIAR, SIER and SIER2, SIER3 (v3.1) are undefined from when PMAE is set to the next alert
    /// (\[memory\] Book III, these registers). Here some instructions set them in that time, with
    /// random valid and privilege bits in SIER.
    pub(crate) fn sample_continuously(&mut self, instruction: &Instruction) {
        let is_on = self.mmcra & mmcra::SAMPLE_ENABLE == 0 && self.mmcr0 & mmcr0::PMAE != 0;
        if is_on && self.random.one_in(4) {
            self.siar = instruction.address;
            self.sier = self.random.bits() & (sier::SIPR | sier::SIHV | sier::SIARV | sier::SDARV);
            self.describe_unmarked(instruction);
        }
        let may = self.sdar_changes || self.mmcr0 & mmcr0::PMAE != 0;
        if !may || !self.samples_data() {
            return;
        }
        if let Some(data) = instruction.data
            && self.random.one_in(16)
        {
            self.sdar = data;
        }
    }

    /// Returns whether continuous sampling is on and updates SDAR.
    fn samples_data(&self) -> bool {
        self.mmcra & mmcra::SAMPLE_ENABLE == 0 && self.mmcra & mmcra::SDAR_MODE != 0
    }

    /// Returns whether the register with this number (SIAR, SDAR, SIER, SIER2 or SIER3) holds the
    /// value that an alert or software set. Each is undefined from when PMAE is set to the next
    /// alert, SIAR and SDAR also after an instruction that was traced (`trace.rs`).
    ///
    /// \[memory\] Book III, these registers.
    pub fn is_known(&self, number: u32) -> bool {
        let moves = number == spr::SDAR && self.sdar_changes && self.samples_data();
        self.known.has(number) && !moves
    }

    /// Samples the instruction that completed last, for an alert. If random sampling is on, the
    /// last marked instruction remains the sampled one.
    ///
    /// \[microwatt\] `pmu_1`, also for the valid bits; \[kernel\] `asm/reg.h`, `siar_valid()`.
    /// Hardware may take another instruction near that one. SIAR does not change while PMAE is 0,
    /// so not after an alert, unless an instruction is traced: \[memory\] Book III, SIAR.
    pub(crate) fn sample_alert(&mut self) {
        for number in [spr::SIAR, spr::SIER, spr::SIER2, spr::SIER3] {
            self.known.add(number);
        }
        if self.mmcra & mmcra::SAMPLE_ENABLE == 0 {
            let (mut instruction, context) = self.last;
            instruction.data = instruction.data.filter(|_| self.samples_data());
            self.sample(&instruction, context);
        }
    }

    /// Samples a marked instruction as it completes, if random sampling is on and alerts are
    /// enabled.
    ///
    /// \[kernel\] `isa207-common.c` for SAMPLE_ENABLE, `siar_valid()` for SIARV; \[memory\] for
    /// PMAE.
    pub(crate) fn sample_marked(&mut self, instruction: &Instruction) {
        let on = self.mmcra & mmcra::SAMPLE_ENABLE != 0 && self.mmcr0 & mmcr0::PMAE != 0;
        if let Some(mark) = instruction.marked.filter(|_| on) {
            self.sample(instruction, self.context);
            self.describe(mark);
        }
    }

    /// Describes a marked instruction in SIER, SIER2 and the threshold counter.
    ///
    /// \[kernel\] `ISA207_SIER_*`, `MMCRA_THR_CTR_*`, `P10_MMCRA_THR_CTR_MANT` and
    /// `P10_SIER2_*_CYC` in `isa207-common.h`.
    fn describe(&mut self, mark: Mark) {
        self.sier &= !OF_ANY_INSTRUCTION;
        self.sier |= u64::from(mark.kind) << sier::TYPE_SHIFT
            | u64::from(mark.level) << sier::LDST_SHIFT
            | u64::from(mark.source) << sier::DATA_SRC_SHIFT;
        let v31 = self.processor.isa() >= Isa::V31;
        let counter = mmcra::user(v31);
        let mantissa = u64::from(mark.latency.0) << mmcra::THR_CTR_MANT_SHIFT;
        let mantissa = mantissa & counter & !mmcra::THR_CTR_EXP;
        let exponent = u64::from(mark.latency.1) << mmcra::THR_CTR_EXP.trailing_zeros();
        let exponent = exponent & mmcra::THR_CTR_EXP;
        self.mmcra = self.mmcra & !counter | mantissa | exponent;
        if v31 {
            let cycles = 0x7ff_u64 << 50 | 0x7ff << 26;
            let found = u64::from(mark.dispatch) << 50 | u64::from(mark.finish) << 26;
            self.sier2 = self.sier2 & !cycles | found & cycles;
        }
    }

    /// Runs the threshold counter for an instruction, if random sampling is off. No field freezes
    /// it, not even FC, which stops "the PMCs". Its events are implementation-specific: here it
    /// identifies the last instruction of problem state.
    ///
    /// \[memory\] Book III, MMCRA (TECE, 0: counting is disabled); MMCR0\[FC\].
    pub(crate) fn count_threshold(&mut self, instruction: &Instruction) {
        let is_random = self.mmcra & mmcra::SAMPLE_ENABLE != 0;
        if self.mmcra & mmcra::TECE != 0 && !is_random && self.context.problem {
            let counter = mmcra::user(self.processor.isa() >= Isa::V31);
            let counted = identifying_bits(instruction.address) << mmcra::THR_CTR_MANT_SHIFT;
            self.mmcra = self.mmcra & !counter | counted & counter;
        }
    }

    fn sample(&mut self, instruction: &Instruction, context: Context) {
        self.siar = instruction.address;
        if let Some(data) = instruction.data {
            self.sdar = data;
            self.known.add(spr::SDAR);
        }
        let (problem, hypervisor) = if self.processor.has_reliable_sipr() {
            (context.problem, context.hypervisor)
        } else {
            (self.random.one_in(2), self.random.one_in(2))
        };
        let bits = [
            (problem, sier::SIPR),
            (hypervisor, sier::SIHV),
            (true, sier::SIARV),
            (instruction.data.is_some(), sier::SDARV),
        ];
        let set = bits.into_iter().filter(|(set, _)| *set);
        self.sier = set.fold(0, |value, (_, bit)| value | bit);
        self.describe_unmarked(instruction);
    }

    /// Describes an instruction that is not marked in SIER, SIER2 and SIER3, in
    /// implementation-specific bits. For a marked instruction the bits of SIER have another
    /// meaning.
    ///
    /// \[kernel\] saves these registers for programs with EBBs; \[memory\] for these bits.
    fn describe_unmarked(&mut self, instruction: &Instruction) {
        let bits = identifying_bits(instruction.address);
        self.sier |= bits;
        if self.processor.isa() >= Isa::V31 {
            (self.sier2, self.sier3) = (bits, bits);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Context, Facility, Instruction, Mark, Processor, mmcr0::*, mmcra, sier::*, spr};

    /// SDAR_MODE for updates on a data cache miss.
    const SDAR_DCACHE: u64 = 2 << 42;

    /// Executes instructions of which the second causes an alert.
    fn sampled(processor: Processor, mmcra: u64, context: Context) -> [u64; 3] {
        let mut facility = Facility::new(processor);
        facility.mtspr(spr::MMCRA, mmcra);
        facility.mtspr(spr::PMC6, 0x7fff_fffe);
        facility.mtspr(spr::MMCR0, PMAE | PMCJCE);
        facility.context = context;
        let marked = Instruction {
            marked: Some(Mark {
                kind: 1,
                level: 2,
                source: 3,
                latency: (9, 1),
                dispatch: 5,
                finish: 6,
            }),
            ..Instruction::at(0x1000)
        };
        facility.execute(&marked);
        facility.execute(&Instruction {
            data: Some(0x8000),
            ..Instruction::at(0x1004)
        });
        // Alerts are disabled now.
        facility.execute(&Instruction {
            address: 0x1008,
            ..marked
        });
        [spr::SIAR, spr::SDAR, spr::SIER].map(|number| facility.mfspr(number))
    }

    #[test]
    fn from_v31_on_the_privilege_of_the_sampled_instruction_is_sometimes_wrong() {
        let mut facility = Facility::new(Processor::Power10);
        facility.context = Context::PROGRAM;
        let mut found: Vec<_> = (0..100)
            .map(|_| {
                facility.mtspr(spr::MMCR0, FC);
                facility.mtspr(spr::PMC6, 0x7fff_ffff);
                facility.mtspr(spr::MMCR0, PMAE | PMCJCE | CC56RUN);
                facility.execute(&Instruction::at(0x1000));
                facility.mfspr(spr::SIER) & (SIPR | SIHV)
            })
            .collect();
        found.sort();
        found.dedup();
        assert_eq!(found, [0, SIHV, SIPR, SIPR | SIHV]);
    }

    #[test]
    fn continuous_sampling_updates_sdar_by_its_mode_while_alerts_are_enabled_or_always() {
        for (moves, mmcra, mmcr0, expected) in [
            (false, SDAR_DCACHE, PMAE, 0x8000),
            (false, SDAR_DCACHE, FC, 0),
            (true, SDAR_DCACHE, FC, 0x8000),
            (true, 0, PMAE, 0),
            (true, SDAR_DCACHE | mmcra::SAMPLE_ENABLE, PMAE, 0),
        ] {
            let mut facility = Facility::new(Processor::Power8);
            if moves {
                facility.let_sdar_change();
            }
            facility.mtspr(spr::MMCRA, mmcra);
            facility.mtspr(spr::MMCR0, mmcr0);
            for _ in 0..400 {
                facility.execute(&Instruction {
                    data: Some(0x8000),
                    ..Instruction::at(0x1000)
                });
            }
            assert_eq!(facility.mfspr(spr::SDAR), expected);
            let is_known = mmcr0 & PMAE == 0 && !(moves && mmcra == SDAR_DCACHE);
            assert_eq!(facility.is_known(spr::SDAR), is_known);
            for number in [spr::SIAR, spr::SIER, spr::SIER2, spr::SIER3] {
                assert_eq!(facility.is_known(number), mmcr0 & PMAE == 0);
            }
            let is_scrambled = mmcr0 & PMAE != 0 && mmcra & mmcra::SAMPLE_ENABLE == 0;
            assert_eq!(facility.mfspr(spr::SIAR) != 0, is_scrambled);
        }
    }

    #[test]
    fn random_sampling_keeps_the_marked_instruction() {
        let sampled = sampled(Processor::Power9, mmcra::SAMPLE_ENABLE, Context::PROGRAM);
        let described = 1 << TYPE_SHIFT | 2 << LDST_SHIFT | 3 << DATA_SRC_SHIFT;
        assert_eq!(sampled, [0x1000, 0, SIARV | SIPR | described]);
    }

    #[test]
    fn the_threshold_counter_is_the_marked_instructions() {
        for processor in Processor::ALL {
            let mut facility = Facility::new(processor);
            facility.mtspr(spr::MMCRA, mmcra::SAMPLE_ENABLE | mmcra::THR_CTR_EXP);
            facility.mtspr(spr::MMCR0, PMAE);
            facility.execute(&Instruction {
                marked: Some(Mark {
                    latency: (0xff, 1),
                    dispatch: 5,
                    finish: 6,
                    ..Mark::default()
                }),
                ..Instruction::at(0x1000)
            });
            let v31 = processor.isa() >= crate::Isa::V31;
            let mantissa = if v31 { 0xff } else { 0x7f };
            let counter = 1 << 27 | mantissa << mmcra::THR_CTR_MANT_SHIFT;
            assert_eq!(facility.mfspr(spr::MMCRA), mmcra::SAMPLE_ENABLE | counter);
            let cycles = if v31 { 5 << 50 | 6 << 26 } else { 0 };
            let sier2 = facility.mfspr(spr::SIER2) & !super::OF_ANY_INSTRUCTION;
            assert_eq!(sier2, cycles);
        }
    }
}

// SPDX-License-Identifier: GPL-2.0

//! Type and latency of the sampled instruction.
//!
//! The registers describe a marked instruction. In a sample of any other event they still describe
//! the instruction that was marked last.
//!
//! Sources: Power ISA v2.07B, v3.0B and v3.1 Book III, SIER and MMCRA; the Performance Monitor
//! Unit User's Guides; `isa207_get_mem_weight()` in the kernel's
//! `arch/powerpc/perf/isa207-common.c`.

use super::super::{
    isa::Isa,
    models::model::CpuModel,
    registers::{
        mmcra_thr_ctr_mant,
        MMCRA_THR_CTR_EXP,
        SIER2_DISPATCH_CYC,
        SIER2_FINISH_CYC,
        SIER_TYPE, //
    }, //
};

/// The type of a sampled instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstructionType {
    /// Load.
    Load,
    /// Store.
    Store,
    /// Branch.
    Branch,
    /// Floating point.
    FloatingPoint,
    /// Fixed point.
    FixedPoint,
    /// Condition register logical, or system call.
    ConditionOrSystem,
    /// Load and reserve, or store conditional (`larx`, `stcx.`; ISA v3.1).
    Reservation,
}

/// The duration of a sampled instruction: perf's weight of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// The threshold counter's count between its start and stop event, such as the cycles from
    /// dispatch to completion; below 2^22. 0 if SIER is not valid. All of `PERF_SAMPLE_WEIGHT`, and
    /// `var1_dw` of `PERF_SAMPLE_WEIGHT_STRUCT`.
    pub latency: u32,
    /// `var2_w`: cycles to finish, below 2^11. 0 before ISA v3.1.
    pub finish_cycles: u16,
    /// `var3_w`: cycles to dispatch, below 2^11. 0 before ISA v3.1.
    pub dispatch_cycles: u16,
}

/// The registers of a sample at the time of the sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleRegisters {
    /// Sampled instruction event register.
    pub sier: u64,
    /// SIER2; ignored before ISA v3.1, which does not have it.
    pub sier2: u64,
    /// Monitor mode control register A, which holds the threshold counter.
    pub mmcra: u64,
}

impl CpuModel {
    /// Returns the type of the sampled instruction; `None` if the CPU's architecture reserves the
    /// type. SIER is not valid then, and a sample of a marked event with this SIER must be dropped.
    pub fn instruction_type(&self, regs: &SampleRegisters) -> Option<InstructionType> {
        Some(match SIER_TYPE.get(regs.sier) {
            1 => InstructionType::Load,
            2 => InstructionType::Store,
            3 => InstructionType::Branch,
            4 => InstructionType::FloatingPoint,
            5 => InstructionType::FixedPoint,
            6 => InstructionType::ConditionOrSystem,
            // ISA v3.1 reserves 7, too, but POWER10 uses it for reservations.
            7 if self.isa >= Isa::V31 => InstructionType::Reservation,
            _ => return None,
        })
    }

    /// Returns the duration of the sampled instruction; 0 on a processor without a model of its
    /// own.
    pub fn weight(&self, regs: &SampleRegisters) -> Weight {
        let mut weight = Weight::default();
        if !self.has_memory_fields {
            return weight;
        }
        if self.instruction_type(regs).is_some() {
            let exponent = MMCRA_THR_CTR_EXP.get(regs.mmcra);
            let mantissa = mmcra_thr_ctr_mant(self.isa).get(regs.mmcra);
            // CAST: The exponent is at most 7, so the shifted eight bits of the mantissa fit in 22
            // bits.
            weight.latency = mantissa.wrapping_shl(exponent.wrapping_mul(2) as u32) as u32;
        }
        if self.isa >= Isa::V31 {
            // CAST: Both fields have eleven bits.
            weight.finish_cycles = SIER2_FINISH_CYC.get(regs.sier2) as u16;
            weight.dispatch_cycles = SIER2_DISPATCH_CYC.get(regs.sier2) as u16;
        }
        weight
    }
}

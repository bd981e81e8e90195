// SPDX-License-Identifier: GPL-2.0

//! What the registers of a sample say about the sampled instruction: of which type
//! it is and how long it took. Where it got its data from is in
//! `memory_access.rs`.
//!
//! They speak of a marked instruction. Samples of other events have the same
//! registers, but what is in them then is the instruction that was sampled last.
//!
//! Abbreviation: SIER sampled instruction event register.
//!
//! Sources: Power ISA v2.07B, v3.0B and v3.1 Book III, SIER and MMCRA; the
//! Performance Monitor Unit User's Guides; `isa207_get_mem_weight()` in the
//! kernel's `arch/powerpc/perf/isa207-common.c`.

use super::{
    cpu::{
        CpuModel,
        Isa, //
    },
    layout::Field,
    memory_access::MemoryAccess, //
};

/// SIER\[46:48\]: type of the instruction.
const TYPE: Field = Field::ibm(46, 48);
/// MMCRA\[34:36\]: exponent of the threshold counter, to the base 4.
const THRESHOLD_EXPONENT: Field = Field::ibm(34, 36);
/// MMCRA\[38:44\]: mantissa of the threshold counter.
const THRESHOLD_MANTISSA: Field = Field::ibm(38, 44);
/// MMCRA\[37:44\]: the same from ISA v3.1 on.
const THRESHOLD_MANTISSA_V31: Field = Field::ibm(37, 44);
/// SIER2\[27:37\]: cycles to finish (POWER10).
const FINISH_CYCLES: Field = Field::ibm(27, 37);
/// SIER2\[3:13\]: cycles to dispatch (POWER10).
const DISPATCH_CYCLES: Field = Field::ibm(3, 13);

/// The type of a sampled instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstructionType {
    /// Loads.
    Load,
    /// Stores.
    Store,
    /// Branches.
    Branch,
    /// Computes in floating point.
    FloatingPoint,
    /// Computes with integers.
    FixedPoint,
    /// Works on the condition register, or calls the system.
    ConditionOrSystem,
    /// Loads and reserves, or stores if still reserved (`larx`, `stcx.`; ISA v3.1).
    Reservation,
}

/// How long a sampled instruction took: perf's weight of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// What the threshold counter counted between its start and stop event: cycles
    /// from dispatch to completion, say, as the event code chose. Below 2^22. The
    /// whole of `PERF_SAMPLE_WEIGHT`, and `var1_dw` of `PERF_SAMPLE_WEIGHT_STRUCT`.
    pub latency: u32,
    /// Cycles to finish, below 2^11, `var2_w`. 0 before ISA v3.1.
    pub finish_cycles: u16,
    /// Cycles to dispatch, below 2^11, `var3_w`. 0 before ISA v3.1.
    pub dispatch_cycles: u16,
}

/// The registers of a sample, as they were when it was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleRegisters {
    /// Sampled instruction event register.
    pub sier: u64,
    /// More of the same; not looked at before ISA v3.1, which has no such register.
    pub sier2: u64,
    /// Monitor mode control register A, with the threshold counter.
    pub mmcra: u64,
}

impl CpuModel {
    /// The type of the sampled instruction; `None` if it is one that the CPU's
    /// architecture reserves, so that nothing can be said about the instruction: a
    /// sample of a marked event with it is void.
    pub const fn instruction_type(&self, regs: &SampleRegisters) -> Option<InstructionType> {
        Some(match TYPE.of(regs.sier) {
            1 => InstructionType::Load,
            2 => InstructionType::Store,
            3 => InstructionType::Branch,
            4 => InstructionType::FloatingPoint,
            5 => InstructionType::FixedPoint,
            6 => InstructionType::ConditionOrSystem,
            // Reserved by the text of v3.1 as well, but this is what it means there.
            7 if self.is_v31() => InstructionType::Reservation,
            _ => return None,
        })
    }

    /// The sampled instruction's access to memory; `None` if it has none.
    pub const fn memory_access(&self, regs: &SampleRegisters) -> Option<MemoryAccess> {
        MemoryAccess::new(self, regs)
    }

    /// How long the sampled instruction took. A latency of 0 if there is no valid one.
    pub const fn weight(&self, regs: &SampleRegisters) -> Weight {
        let exponent = THRESHOLD_EXPONENT.of(regs.mmcra);
        let mantissa = match self.isa {
            Isa::V207 | Isa::V300 => THRESHOLD_MANTISSA,
            Isa::V31 => THRESHOLD_MANTISSA_V31,
        };
        let mantissa = mantissa.of(regs.mmcra);
        // CAST: the exponent is at most 7, and eight bits move up by 14 at most.
        let counted = mantissa.wrapping_shl(exponent.wrapping_mul(2) as u32) as u32;
        let valid = self.instruction_type(regs).is_some();
        let mut weight = Weight {
            latency: if valid { counted } else { 0 },
            finish_cycles: 0,
            dispatch_cycles: 0,
        };
        if self.is_v31() {
            // CAST: eleven bits.
            weight.finish_cycles = FINISH_CYCLES.of(regs.sier2) as u16;
            weight.dispatch_cycles = DISPATCH_CYCLES.of(regs.sier2) as u16;
        }
        weight
    }

    /// As a comparison that can be made in a `const fn`.
    pub(super) const fn is_v31(&self) -> bool {
        matches!(self.isa, Isa::V31)
    }
}

// SPDX-License-Identifier: GPL-2.0
//! Numbers of the registers in samples (`asm/perf_regs.h`).

use std::io;

use crate::machine;
use crate::machine::Model;

/// General register 1. Each general register has its own number.
pub const R1: u32 = 1;
/// Address of the interrupted instruction.
pub const NIP: u32 = 32;
/// Machine state.
pub const MSR: u32 = 33;
/// On entry by an interrupt this holds CFAR (`exceptions-64s.S`), the address of the last branch.
/// That branch may be the kernel's return to the program.
pub const ORIG_R3: u32 = 34;
/// Count register.
pub const CTR: u32 = 35;
/// The kernel's soft mask for interrupts.
pub const SOFTE: u32 = 39;
/// Vector of the interrupt.
pub const TRAP: u32 = 40;
/// MMCRA as the interrupt found it. The number before it is SIER, also as the interrupt found it.
pub const MMCRA: u32 = 44;
/// MMCR0, the first of the extended registers.
pub const MMCR0: u32 = 45;
/// MMCR1, an extended register.
pub const MMCR1: u32 = 46;
/// MMCR2, an extended register.
pub const MMCR2: u32 = 47;
/// MMCR3, an extended register. The next two numbers are SIER2 and SIER3.
pub const MMCR3: u32 = 48;
/// PMC1. The next five numbers are PMC2 to PMC6.
pub const PMC1: u32 = 51;
/// Sampled data address.
pub const SDAR: u32 = 57;
/// Sampled instruction address, the last of the extended registers.
pub const SIAR: u32 = 58;

/// Mask of all registers that are not extended.
pub const GENERAL: u64 = (1 << MMCR0) - 1;

/// MSR\[PR\].
pub const PROBLEM_STATE: u64 = 1 << 14;
/// The vector of the performance monitor interrupt.
pub const PERFMON: u64 = 0xf00;

/// Returns the mask of the extended registers that this machine has.
pub fn extended() -> io::Result<u64> {
    let of_v31 = 0b111 << MMCR3;
    let of_v300 = ((1 << (SIAR + 1)) - 1) & !GENERAL & !of_v31;
    Ok(match machine::model()? {
        Model::Power8 => 0,
        Model::Power9 => of_v300,
        Model::Power10 => of_v300 | of_v31,
    })
}

/// Registers in a sample.
#[derive(Debug, Clone, Default)]
pub struct Registers {
    /// PERF_SAMPLE_REGS_ABI_ number; 0 if there are none.
    pub abi: u64,
    pub(crate) mask: u64,
    pub(crate) values: Vec<u64>,
}

impl Registers {
    /// Returns the value of a register, or 0 if the sample does not have it.
    pub fn get(&self, number: u32) -> u64 {
        if self.mask >> number & 1 == 0 {
            return 0;
        }
        let before = self.mask & ((1 << number) - 1);
        let value = self.values.get(before.count_ones() as usize);
        value.copied().unwrap_or(0)
    }
}

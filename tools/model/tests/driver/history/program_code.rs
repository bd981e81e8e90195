// SPDX-License-Identifier: GPL-2.0

//! The code of programs. Each address has a branch instruction, which a program takes or skips, and
//! it also determines whether random sampling marks the instruction there. So the address alone is
//! enough to check entries of the BHRB and SIAR.

use crate::perf_bindings::*;
use pmu_model::{Branch, BranchForm, Instruction, Mark};

/// The kind of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Jump,
    Call,
    Conditional,
    Return,
    IndirectCall,
    IndirectJump,
}

/// The kinds of branches with their instructions, without a target: `b`, `bl`, `beq`, `blr`,
/// `bctrl`, `bctr`.
const KINDS: [(Kind, u32); 6] = [
    (Kind::Jump, 0x4800_0000),
    (Kind::Call, 0x4800_0001),
    (Kind::Conditional, 0x4182_0000),
    (Kind::Return, 0x4e80_0020),
    (Kind::IndirectCall, 0x4e80_0421),
    (Kind::IndirectJump, 0x4e80_0420),
];

/// Returns the kind of the branch at an address, its instruction, and its description for the PMU.
pub fn branch_at(address: u64) -> (Kind, u32, Branch) {
    let (kind, instruction) = KINDS[(address / 4 % 7 % 6) as usize];
    let target = (address & !0xffff) | ((address + 0x44) & 0xfff) | 0x1000;
    let distance = target.wrapping_sub(address) as u32;
    let (form, instruction) = match kind {
        Kind::Jump | Kind::Call => (BranchForm::I, instruction | distance & 0x03ff_fffc),
        Kind::Conditional => (BranchForm::B, instruction | distance & 0xfffc),
        _ => (BranchForm::Xl, instruction),
    };
    let branch = Branch {
        link: matches!(kind, Kind::Call | Kind::IndirectCall),
        always: kind != Kind::Conditional,
        mispredicted: address / 4 % 5 == 1,
        ..Branch::taken(form, target)
    };
    (kind, instruction, branch)
}

/// A marked instruction, as the facility and as perf's samples should describe it.
#[derive(Clone, Copy)]
pub struct Marked {
    pub mark: Mark,
    /// The type is one that the ISA reserves, so SIER describes nothing.
    pub is_void: bool,
    /// `union perf_mem_data_src` for an instruction that accesses memory.
    pub data_src: Option<u64>,
    /// Value of the threshold counter.
    pub latency: u64,
}

/// Returns perf's description of data: operation, levels, number of the level, snooping, hops.
const fn data_src(op: u32, level: u32, number: u32, snoop: u32, hops: u32) -> Option<u64> {
    let remote = if hops == 0 { 0 } else { PERF_MEM_REMOTE_REMOTE };
    Some(
        (op as u64) << PERF_MEM_OP_SHIFT
            | ((PERF_MEM_LVL_HIT | level) as u64) << PERF_MEM_LVL_SHIFT
            | (snoop as u64) << PERF_MEM_SNOOP_SHIFT
            | (PERF_MEM_LOCK_NA as u64) << PERF_MEM_LOCK_SHIFT
            | (PERF_MEM_TLB_NA as u64) << PERF_MEM_TLB_SHIFT
            | (number as u64) << PERF_MEM_LVLNUM_SHIFT
            | (remote as u64) << PERF_MEM_REMOTE_SHIFT
            | (hops as u64) << PERF_MEM_HOPS_SHIFT,
    )
}

/// Types with LDST and DATA_SRC, and their meaning on every processor (POWER8, POWER9 and POWER10
/// Performance Monitor Unit User's Guides): a load from the first level cache, a load of data that
/// the cache of another chip had modified, a store to the second level cache, a branch, and a
/// reserved type.
const MARKS: [(u8, u8, u8, Option<u64>); 5] = [
    (
        1,
        1,
        0,
        data_src(
            PERF_MEM_OP_LOAD,
            PERF_MEM_LVL_L1,
            PERF_MEM_LVLNUM_L1,
            PERF_MEM_SNOOP_HIT,
            0,
        ),
    ),
    (
        1,
        6,
        1,
        data_src(
            PERF_MEM_OP_LOAD,
            PERF_MEM_LVL_REM_CCE1,
            PERF_MEM_LVLNUM_ANY_CACHE,
            PERF_MEM_SNOOP_HITM,
            PERF_MEM_HOPS_2,
        ),
    ),
    (
        2,
        2,
        0,
        data_src(
            PERF_MEM_OP_STORE,
            PERF_MEM_LVL_L2,
            PERF_MEM_LVLNUM_L2,
            PERF_MEM_SNOOP_HIT,
            0,
        ),
    ),
    (3, 0, 0, None),
    (0, 0, 0, None),
];

/// Returns the description of the instruction at an address if random sampling marks it.
pub fn marked_at(address: u64) -> Option<Marked> {
    let number = address / 4;
    if !number.is_multiple_of(3) {
        return None;
    }
    let (kind, level, source, data_src) = MARKS[(number / 3 % 5) as usize];
    let (mantissa, exponent) = ((number % 120) as u8 + 1, (number % 8) as u8);
    let mark = Mark {
        kind,
        level,
        source,
        latency: (mantissa, exponent),
        dispatch: (number % 2000) as u16 + 1,
        finish: (number % 1900) as u16 + 2,
    };
    Some(Marked {
        mark,
        is_void: kind == 0,
        data_src,
        latency: u64::from(mantissa) << (2 * exponent),
    })
}

/// Returns the instruction of a program at an address. It may access `data`.
pub fn instruction_at(address: u64, data: u64) -> Instruction {
    Instruction {
        data: (!(address / 4).is_multiple_of(6)).then_some(data),
        marked: marked_at(address).map(|marked| marked.mark),
        ..Instruction::at(address)
    }
}

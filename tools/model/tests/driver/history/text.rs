// SPDX-License-Identifier: GPL-2.0

//! The text of programs: each address has a branch instruction, which a program takes or jumps
//! over. So what a BHRB has can be checked by the address alone.

use pmu_model::{Branch, BranchForm};

/// What a branch does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Jump,
    Call,
    Conditional,
    Return,
    IndirectCall,
    IndirectJump,
}

/// The kinds, each with its instruction without a target: `b`, `bl`, `beq`, `blr`, `bctrl`, `bctr`.
const KINDS: [(Kind, u32); 6] = [
    (Kind::Jump, 0x4800_0000),
    (Kind::Call, 0x4800_0001),
    (Kind::Conditional, 0x4182_0000),
    (Kind::Return, 0x4e80_0020),
    (Kind::IndirectCall, 0x4e80_0421),
    (Kind::IndirectJump, 0x4e80_0420),
];

/// What the branch at an address does, its instruction, and what the PMU sees of it.
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
        ..Branch::taken(form, target)
    };
    (kind, instruction, branch)
}

// SPDX-License-Identifier: GPL-2.0

//! Decodes branch instructions: the target, and whether a branch is conditional, a call or a
//! return.
//!
//! The BHRB records branches of three forms: I-form (`b`), B-form (`bc`) and XL-form (`bclr`,
//! `bcctr`, `bctar`). It does not record interrupts, `sc`, `scv`, `rfid`, `hrfid`, `rfscv` and
//! `rfebb`, so this module does not treat them as branches. Prefixed instructions are no branches
//! either: a prefix has the primary opcode 1, and no suffix is a branch.
//!
//! Sources: Power ISA v3.1 Book I, section 2.4 "Branch Instructions"; Book III, "Branch History
//! Rolling Buffer".

/// The kinds of branches that perf distinguishes (`PERF_BR_*`).
///
/// Among conditional indirect branches perf has a kind only for returns. Others (`bnectr`) have the
/// kind of the unconditional branch, because that kind still says that the target is in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BranchKind {
    /// Conditional, to an address in the instruction: `PERF_BR_COND`.
    Conditional,
    /// Always taken, to an address in the instruction: `PERF_BR_UNCOND`.
    Unconditional,
    /// To an address in a register, neither call nor return: `PERF_BR_IND`.
    IndirectJump,
    /// Call of a function at an address in the instruction: `PERF_BR_CALL`.
    Call,
    /// Call of a function at an address in a register: `PERF_BR_IND_CALL`.
    IndirectCall,
    /// Return: `PERF_BR_RET`.
    Return,
    /// Conditional call of a function at an address in the instruction: `PERF_BR_COND_CALL`.
    ConditionalCall,
    /// Conditional return: `PERF_BR_COND_RET`.
    ConditionalReturn,
}

/// Where a branch continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destination {
    /// To this address.
    Fixed(u64),
    /// To the caller, whose address is in the link register.
    Caller,
    /// To an address in a register.
    Register,
}

/// A decoded branch instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    destination: Destination,
    conditional: bool,
    call: bool,
}

/// `bcl 20,31,$+4`: puts the address of the next instruction into the link register. The ISA
/// reserves this one form for that, and processors do not predict it as a call.
const GET_NEXT_ADDRESS: u32 = 0x429f_0005;

/// Primary opcodes of branches whose target is in the instruction.
const B_FORM: u32 = 16;
const I_FORM: u32 = 18;

impl Branch {
    /// Decodes the instruction at `address`; `None` if it is not a branch.
    ///
    /// `instruction` is the instruction as a number: in a little-endian program, its four bytes
    /// read as a little-endian word. Reserved bits are ignored, as processors may do.
    pub const fn decode(instruction: u32, address: u64) -> Option<Branch> {
        // LK: the address of the next instruction goes to the link register.
        let links = instruction & 1 != 0;
        let destination = match fixed_target(instruction, address) {
            Some(address) => Destination::Fixed(address),
            // XL-form: BO, BI, BH (two bits), extended opcode, LK.
            None if instruction >> 26 == 19 => match instruction >> 1 & 0x3ff {
                // bclr. BH is 0 for a return; other values are hints for predicting the target of a
                // bclr that is not a return.
                16 if !links && instruction >> 11 & 3 == 0 => Destination::Caller,
                // bclr, bcctr, bctar.
                16 | 528 | 560 => Destination::Register,
                _ => return None,
            },
            None => return None,
        };
        Some(Branch {
            destination,
            conditional: instruction >> 26 != I_FORM && is_conditional(instruction),
            call: links && instruction != GET_NEXT_ADDRESS,
        })
    }

    /// Returns the target; `None` if it is in a register.
    pub const fn target(&self) -> Option<u64> {
        match self.destination {
            Destination::Fixed(address) => Some(address),
            Destination::Caller | Destination::Register => None,
        }
    }

    /// Returns whether the branch is conditional.
    pub const fn is_conditional(&self) -> bool {
        self.conditional
    }

    /// Returns whether the branch is a call: it puts a return address into the link register.
    ///
    /// `bcl 20,31,$+4` does so too but is no call: position-independent code uses it to find its
    /// own address, and nothing returns to that address.
    pub const fn is_call(&self) -> bool {
        self.call
    }

    /// Returns whether the branch is a return.
    pub const fn is_return(&self) -> bool {
        matches!(self.destination, Destination::Caller)
    }

    /// Returns whether the target is in a register. A return counts as indirect, too.
    pub const fn is_indirect(&self) -> bool {
        self.target().is_none()
    }

    /// Returns perf's kind of the branch.
    pub const fn kind(&self) -> BranchKind {
        match (self.destination, self.call, self.conditional) {
            (Destination::Fixed(_), false, false) => BranchKind::Unconditional,
            (Destination::Fixed(_), false, true) => BranchKind::Conditional,
            (Destination::Fixed(_), true, false) => BranchKind::Call,
            (Destination::Fixed(_), true, true) => BranchKind::ConditionalCall,
            (Destination::Caller, _, false) => BranchKind::Return,
            (Destination::Caller, _, true) => BranchKind::ConditionalReturn,
            (Destination::Register, false, _) => BranchKind::IndirectJump,
            (Destination::Register, true, _) => BranchKind::IndirectCall,
        }
    }
}

/// Returns whether the BO field is anything other than "branch always" (`1z1zz`).
const fn is_conditional(instruction: u32) -> bool {
    instruction >> 21 & 0b10100 != 0b10100
}

/// Returns the target of the branch instruction at `address`; `None` if it is in a register, or if
/// the instruction is not a branch. See [`Branch::decode`] for `instruction`.
#[inline]
pub const fn fixed_target(instruction: u32, address: u64) -> Option<u64> {
    let distance = match instruction >> 26 {
        // LI (24 bits), AA, LK.
        // CAST: `<< 6` moves the sign bit of LI to bit 31, so `i32` has the right sign.
        I_FORM => ((instruction << 6) as i32 >> 6 & !3) as i64,
        // BO, BI, BD (14 bits), AA, LK.
        // CAST: BD is the low half of the instruction; AA and LK, its two lowest bits, are cleared.
        B_FORM => (instruction as i16 & !3) as i64,
        _ => return None,
    };
    // AA: the field is an address, not a distance.
    let base = if instruction & 2 != 0 { 0 } else { address };
    Some(base.wrapping_add_signed(distance))
}

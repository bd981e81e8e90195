// SPDX-License-Identifier: GPL-2.0

//! Parses the mnemonic of a branch and its operands. A mnemonic consists of `b`, a condition, the
//! register that holds the target if no operand does, `l` if LK is set and `a` if AA is set:
//! `bdnzlrl` is `b`, `dnz`, `lr`, `l`.
//!
//! Source: Power ISA v3.1 Book I, appendix "Assembler Extended Mnemonics".

use std::collections::HashMap;

use isa207::BranchKind;

/// Conditions; `c` stands for a condition with BO and BI as operands.
const CONDITIONS: [&str; 22] = [
    "", "c", "lt", "le", "eq", "ge", "gt", "nl", "ne", "ng", "so", "ns", "un", "nu", "t", "f",
    "dnz", "dz", "dnzt", "dnzf", "dzt", "dzf",
];

/// The BO operands that mean "always".
const ALWAYS: [&str; 8] = ["20", "21", "22", "23", "28", "29", "30", "31"];

/// The parts of a mnemonic.
#[derive(Clone, Copy)]
struct Parts {
    condition: &'static str,
    register: &'static str,
    links: bool,
    absolute: bool,
}

/// All mnemonics of branches.
pub struct Mnemonics(HashMap<String, Parts>);

impl Mnemonics {
    pub fn new() -> Self {
        let mut all = HashMap::new();
        for condition in CONDITIONS {
            for register in ["", "lr", "ctr", "tar"] {
                for link in ["", "l"] {
                    for absolute in ["", "a"] {
                        if absolute == "a" && !register.is_empty() {
                            continue;
                        }
                        let name = format!("b{condition}{register}{link}{absolute}");
                        let parts = Parts {
                            condition,
                            register,
                            links: link == "l",
                            absolute: absolute == "a",
                        };
                        assert!(all.insert(name.clone(), parts).is_none(), "{name} is two");
                    }
                }
            }
        }
        Self(all)
    }

    /// Returns kind and target of the instruction in `text`, which is at `address`; `None` if it is
    /// not a branch.
    pub fn branch(&self, text: &str, address: u64) -> Option<(BranchKind, Option<u64>)> {
        let (mnemonic, operands) = text.split_once(' ').unwrap_or((text, ""));
        // Remove the hints on whether the branch is taken.
        let mnemonic = mnemonic.trim_end_matches(['+', '-']);
        let parts = self.0.get(mnemonic)?;
        let (operands, _) = operands.split_once('<').unwrap_or((operands, ""));
        let operands: Vec<_> = operands.trim().split(',').collect();
        let always = match parts.condition {
            "" => true,
            "c" => ALWAYS.contains(&operands[0]),
            _ => false,
        };
        if !parts.register.is_empty() {
            // The hint BH is a number after the condition, omitted if it is 0.
            let condition = if parts.condition == "c" { 2 } else { 0 };
            let mut rest = operands.iter().skip(condition);
            let hinted = rest.any(|operand| ["1", "2", "3"].contains(operand));
            let returns = parts.register == "lr" && !hinted;
            let kind = match (parts.links, returns) {
                (true, _) => BranchKind::IndirectCall,
                (false, false) => BranchKind::IndirectJump,
                (false, true) if always => BranchKind::Return,
                (false, true) => BranchKind::ConditionalReturn,
            };
            return Some((kind, None));
        }
        let target = operands.last().unwrap();
        // The address has the prefix 0x if no symbol is near.
        let target = target.trim_start_matches("0x");
        let mut target = u64::from_str_radix(target, 16).expect("a target");
        if parts.absolute {
            // objdump prints the lower half of a sign-extended number.
            target = target as i32 as u64;
        }
        let learns_address = mnemonic == "bcl"
            && operands[..2] == ["20", "4*cr7+so"]
            && target == address.wrapping_add(4);
        let kind = match (parts.links && !learns_address, always) {
            (false, true) => BranchKind::Unconditional,
            (false, false) => BranchKind::Conditional,
            (true, true) => BranchKind::Call,
            (true, false) => BranchKind::ConditionalCall,
        };
        Some((kind, Some(target)))
    }
}

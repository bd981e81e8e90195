// SPDX-License-Identifier: GPL-2.0

//! Encodes random branches as instructions and as entries of the BHRB, and decodes them again;
//! compares all sets of branch types with the branches that the hardware records.

use isa207::{
    BhrbRecord,
    Branch,
    BranchKind,
    BranchTypes,
    Isa, //
};
use proptest::prelude::*;

use crate::{
    models,
    run, //
};

/// A branch as in assembly.
#[derive(Clone, Copy, Debug)]
enum Instruction {
    /// `b`: distance or address in words, AA, LK.
    I(i32, bool, bool),
    /// `bc`: BO, BI, distance or address in words, AA, LK.
    B(u32, u32, i32, bool, bool),
    /// `bclr`, `bcctr`, `bctar`: extended opcode, BO, BI, BH, LK.
    Xl(u32, u32, u32, u32, bool),
}

use Instruction::*;

impl Instruction {
    fn encode(self) -> u32 {
        let flags = |aa, lk| u32::from(aa) << 1 | u32::from(lk);
        match self {
            I(words, aa, lk) => 18 << 26 | (words as u32 & 0xff_ffff) << 2 | flags(aa, lk),
            B(bo, bi, words, aa, lk) => {
                let upper = 16 << 26 | bo << 21 | bi << 16;
                upper | (words as u32 & 0x3fff) << 2 | flags(aa, lk)
            }
            Xl(opcode, bo, bi, bh, lk) => {
                19 << 26 | bo << 21 | bi << 16 | bh << 11 | opcode << 1 | flags(false, lk)
            }
        }
    }

    fn links(self) -> bool {
        match self {
            I(.., lk) | B(.., lk) | Xl(.., lk) => lk,
        }
    }

    /// Returns whether the branch depends on CTR or a condition.
    fn conditional(self) -> bool {
        match self {
            I(..) => false,
            B(bo, ..) | Xl(_, bo, ..) => bo & 0b00100 == 0 || bo & 0b10000 == 0,
        }
    }

    fn is_call(self) -> bool {
        // `bcl 20,31,$+4` is excluded: it only finds its own address.
        self.links() && !matches!(self, B(20, 31, 1, false, true))
    }

    fn returns(self) -> bool {
        matches!(self, Xl(16, _, _, 0, false))
    }

    fn target(self, address: u64) -> Option<u64> {
        let (words, absolute) = match self {
            I(words, aa, _) | B(_, _, words, aa, _) => (words, aa),
            Xl(..) => return None,
        };
        let bytes = i128::from(words) * 4 + if absolute { 0 } else { i128::from(address) };
        Some(bytes.rem_euclid(1 << 64) as u64)
    }

    fn kind(self) -> BranchKind {
        match self {
            Xl(..) if self.returns() && self.conditional() => BranchKind::ConditionalReturn,
            Xl(..) if self.returns() => BranchKind::Return,
            Xl(.., true) => BranchKind::IndirectCall,
            Xl(..) => BranchKind::IndirectJump,
            _ if self.is_call() && self.conditional() => BranchKind::ConditionalCall,
            _ if self.is_call() => BranchKind::Call,
            _ if self.conditional() => BranchKind::Conditional,
            _ => BranchKind::Unconditional,
        }
    }
}

fn instruction() -> impl Strategy<Value = Instruction> {
    let flags = || (any::<bool>(), any::<bool>());
    let i = (-0x80_0000..0x80_0000, flags()).prop_map(|(words, (aa, lk))| I(words, aa, lk));
    let words = prop_oneof![3 => -0x2000..0x2000, 1 => Just(1)];
    let bi = prop_oneof![3 => 0u32..32, 1 => Just(31)];
    let b = (0u32..32, bi, words, flags());
    let b = b.prop_map(|(bo, bi, words, (aa, lk))| B(bo, bi, words, aa, lk));
    let opcode = prop::sample::select(vec![16, 528, 560]);
    let xl = (opcode, 0u32..32, 0u32..32, 0u32..4, any::<bool>());
    let xl = xl.prop_map(|(opcode, bo, bi, bh, lk)| Xl(opcode, bo, bi, bh, lk));
    prop_oneof![1 => i, 2 => b, 2 => xl]
}

#[test]
fn instructions_decode_back() {
    let addresses = prop_oneof![any::<u64>(), 0..0x1000u64, !0xfff..=u64::MAX];
    let inputs = (instruction(), addresses.prop_map(|address| address & !3));
    run("branches", &inputs, |(instruction, address)| {
        let Some(branch) = Branch::decode(instruction.encode(), address) else {
            return Err(TestCaseError::fail("no branch"));
        };
        prop_assert_eq!(branch.target(), instruction.target(address));
        prop_assert_eq!(branch.kind(), instruction.kind());
        prop_assert_eq!(branch.is_call(), instruction.is_call());
        prop_assert_eq!(branch.is_conditional(), instruction.conditional());
        prop_assert_eq!(branch.is_return(), instruction.returns());
        prop_assert_eq!(branch.is_indirect(), matches!(instruction, Xl(..)));
        Ok(())
    });
}

/// Returns every set of types.
fn all_types() -> impl Iterator<Item = BranchTypes> {
    (0..1 << 7).map(|set: u32| {
        let has = |n: u32| set >> n & 1 == 1;
        BranchTypes {
            any: has(0),
            any_call: has(1),
            any_return: has(2),
            indirect_call: has(3),
            conditional: has(4),
            call: has(5),
            indirect_jump: has(6),
        }
    })
}

/// Returns whether the BHRB records a branch under a filter, for each reading of the documents.
fn recorded(isa: Isa, ifm: u8, instruction: Instruction) -> Vec<bool> {
    let indirect = matches!(instruction, Xl(..));
    match ifm {
        0 => vec![true],
        1 => vec![instruction.links()],
        // The readings: XL-form without LK, any XL-form, or indirect calls.
        2 if isa == Isa::V31 => {
            let links = instruction.links();
            vec![indirect && !links, indirect, indirect && links]
        }
        3 if isa == Isa::V31 => vec![instruction.conditional()],
        // These filters record some branches without the address.
        _ => vec![false],
    }
}

#[test]
fn hardware_filters_lose_nothing_and_are_exact_if_they_say_so() {
    for model in models() {
        run(model.name(), &instruction(), |instruction| {
            let branch = Branch::decode(instruction.encode(), 0x10000).unwrap();
            for types in all_types() {
                let filter = model.branch_filter(types);
                let wanted = types.contains(branch);
                for recorded in recorded(model.isa(), filter.ifm, instruction) {
                    prop_assert!(recorded || !wanted, "{types:?} loses");
                    let too_many = recorded && !wanted;
                    prop_assert!(!(filter.exact && too_many), "{types:?} is not exact");
                }
            }
            Ok(())
        });
    }
}

/// A set of types contains the branches of each of its types.
#[test]
fn types_are_a_union() {
    run("types", &instruction(), |instruction| {
        let branch = Branch::decode(instruction.encode(), 0x10000).unwrap();
        let single: Vec<_> = all_types()
            .enumerate()
            .filter(|(set, _)| set.count_ones() == 1)
            .collect();
        for (set, types) in all_types().enumerate() {
            let mut parts = single.iter().filter(|(one, _)| one & set != 0);
            let any = parts.any(|(_, types)| types.contains(branch));
            prop_assert_eq!(types.contains(branch), any, "{:?}", types);
        }
        Ok(())
    });
}

/// A branch as it is in the BHRB, target first; or entries that are no branch.
#[derive(Clone, Debug)]
struct Written {
    entries: Vec<u64>,
    record: Option<BhrbRecord>,
}

fn written() -> impl Strategy<Value = Written> {
    let address = || (1..u64::MAX).prop_map(|address| (address & !3).max(4));
    let direct = (address(), any::<bool>()).prop_map(|(from, mispredicted)| Written {
        entries: vec![from | u64::from(mispredicted)],
        record: Some(BhrbRecord {
            from,
            to: None,
            mispredicted,
        }),
    });
    let flags = (any::<bool>(), any::<bool>());
    let indirect =
        (address(), address(), flags).prop_map(|(from, to, (direction, target))| Written {
            entries: vec![to | 2 | u64::from(target), from | u64::from(direction)],
            record: Some(BhrbRecord {
                from,
                to: Some(to),
                mispredicted: direction || target,
            }),
        });
    let nothing = (address(), 1u64..4).prop_map(|(to, flags)| Written {
        entries: vec![to | 2, flags],
        record: None,
    });
    let lost_target = (address(), any::<bool>()).prop_map(|(to, again)| Written {
        entries: vec![to | 2 | u64::from(again), 1],
        record: None,
    });
    prop_oneof![4 => direct, 4 => indirect, 1 => nothing, 1 => lost_target]
}

#[test]
fn bhrb_entries_read_back() {
    let all = prop::collection::vec(written(), 0..20);
    let stale = prop::collection::vec(any::<u64>(), 0..8);
    run("entries", &(all, stale), |(all, stale)| {
        let mut entries = Vec::new();
        let mut expected = Vec::new();
        for branch in all {
            // The end of the buffer may split a pair.
            let room = 32 - entries.len();
            if branch.entries.len() <= room {
                expected.extend(branch.record);
            }
            entries.extend(branch.entries.into_iter().take(room));
        }
        entries.push(0);
        entries.extend(stale);
        let seen: Vec<_> = isa207::bhrb_records(entries.into_iter()).collect();
        prop_assert_eq!(seen, expected);
        Ok(())
    });
}

#[test]
fn any_bhrb_at_all() {
    let entry = prop_oneof![any::<u64>(), 0..16u64, (0..16u64).prop_map(|n| n | 0x1000)];
    let entries = prop::collection::vec(entry, 0..33);
    run("any entries", &entries, |entries| {
        let given = entries.iter().copied();
        let given: Vec<_> = given.take_while(|entry| *entry != 0).collect();
        let seen: Vec<_> = isa207::bhrb_records(entries.into_iter()).collect();
        // Each entry without T becomes one branch, in order.
        let branches = given.iter().filter(|entry| **entry & 2 == 0 && **entry > 3);
        let branches: Vec<_> = branches.map(|entry| entry & !3).collect();
        let from: Vec<_> = seen.iter().map(|record| record.from).collect();
        prop_assert_eq!(from, branches);
        for record in seen {
            if let Some(to) = record.to {
                let pair = |pair: &[u64]| pair[0] & !1 == to | 2 && pair[1] & !3 == record.from;
                prop_assert!(given.windows(2).any(pair));
            }
        }
        Ok(())
    });
}

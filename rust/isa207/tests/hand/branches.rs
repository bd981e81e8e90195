// SPDX-License-Identifier: GPL-2.0

//! Branch instructions as the assembler encodes them, branch filters, and entries of the BHRB.

use isa207::{
    BhrbRecord,
    Branch,
    BranchKind::{
        self,
        *, //
    },
    BranchTypes,
    HardwareFilter, //
};

use super::*;

/// Returns kind and target of an instruction at 0x10000.
fn decode(instruction: u32) -> Option<(BranchKind, Option<u64>)> {
    let branch = Branch::decode(instruction, 0x10000)?;
    Some((branch.kind(), branch.target()))
}

#[test]
fn direct_branches() {
    for (instruction, kind, target) in [
        (0x4800_0010, Unconditional, 0x10010),      // b $+16
        (0x4bff_fff0, Unconditional, 0xfff0),       // b $-16
        (0x4800_0012, Unconditional, 0x10),         // ba 16
        (0x4bff_fff2, Unconditional, !0xf),         // ba -16
        (0x4800_0011, Call, 0x10010),               // bl $+16
        (0x4800_0013, Call, 0x10),                  // bla 16
        (0x49ff_fffd, Call, 0x200_fffc),            // bl, the farthest ahead
        (0x4a00_0001, Call, 0xffff_ffff_fe01_0000), // bl, the farthest back
        (0x4182_0010, Conditional, 0x10010),        // beq $+16
        (0x4082_fff0, Conditional, 0xfff0),         // bne $-16
        (0x4082_fff2, Conditional, !0xf),           // bnea -16
        (0x4182_7ffc, Conditional, 0x17ffc),        // beq, the farthest ahead
        (0x4182_8000, Conditional, 0x8000),         // beq, the farthest back
        (0x4200_fff0, Conditional, 0xfff0),         // bdnz $-16
        (0x4240_fff0, Conditional, 0xfff0),         // bdz $-16
        (0x41c2_0010, Conditional, 0x10010),        // beq- $+16
        (0x41e2_0010, Conditional, 0x10010),        // beq+ $+16
        (0x4182_0011, ConditionalCall, 0x10010),    // beql $+16
        (0x4280_0010, Unconditional, 0x10010),      // bc 20,0,$+16
        (0x43e0_0010, Unconditional, 0x10010),      // bc 31,0,$+16
        (0x4280_0011, Call, 0x10010),               // bcl 20,0,$+16
    ] {
        assert_eq!(
            decode(instruction),
            Some((kind, Some(target))),
            "{instruction:#x}"
        );
    }
    // Targets wrap at both ends of the address space.
    let target = |instruction, address| Branch::decode(instruction, address)?.target();
    assert_eq!(target(0x4800_0010, u64::MAX - 3), Some(0xc));
    assert_eq!(target(0x4bff_fff0, 0), Some(!0xf));
}

#[test]
fn indirect_branches() {
    for (instruction, kind) in [
        (0x4e80_0020, Return),            // blr
        (0x4d82_0020, ConditionalReturn), // beqlr
        (0x4ca2_0020, ConditionalReturn), // bnelr+ in the old way
        (0x4e00_0020, ConditionalReturn), // bdnzlr
        (0x4e80_0820, IndirectJump),      // bclr 20,0,1: no return, BH says
        (0x4e80_1820, IndirectJump),      // bclr 20,0,3
        (0x4e80_0021, IndirectCall),      // blrl
        (0x4d82_0021, IndirectCall),      // beqlrl
        (0x4e80_0420, IndirectJump),      // bctr
        (0x4c82_0420, IndirectJump),      // bnectr
        (0x4e80_0421, IndirectCall),      // bctrl
        (0x4c82_0421, IndirectCall),      // bnectrl
        (0x4e80_0460, IndirectJump),      // btar
        (0x4e80_0461, IndirectCall),      // btarl
    ] {
        assert_eq!(decode(instruction), Some((kind, None)), "{instruction:#x}");
    }
}

/// `bcl 20,31,$+4` is how position-independent code finds its own address.
#[test]
fn the_address_of_the_next_instruction_is_no_call() {
    assert_eq!(decode(0x429f_0005), Some((Unconditional, Some(0x10004))));
    // With a different target or condition bit, it is a call.
    assert_eq!(decode(0x429f_0009), Some((Call, Some(0x10008))));
    assert_eq!(decode(0x4280_0005), Some((Call, Some(0x10004))));
    // `bl` to the next instruction is a call, too: of a function that follows directly.
    assert_eq!(decode(0x4800_0005), Some((Call, Some(0x10004))));
}

#[test]
fn other_instructions() {
    for instruction in [
        0,
        0x6000_0000, // nop
        0x4400_0002, // sc
        0x4400_0001, // scv 0
        0x4c00_0024, // rfid
        0x4c00_00a4, // rfscv
        0x4c00_0224, // hrfid
        0x4c00_0924, // rfebb 1
        0x4c00_012c, // isync
        0x4c42_1182, // crclr 2, whose opcode is 19 as well
        0x4e80_0022, // blr with one bit of the extended opcode flipped
        0x0600_0000, // the prefix of pli
        0x3860_0000, // the suffix of that pli
        0x7c00_0008, // tw
        0x7863_0020, // clrldi r3,r3,32, which has the extended opcode of bclr
        u32::MAX,
    ] {
        assert_eq!(decode(instruction), None, "{instruction:#x}");
    }
}

#[test]
fn kinds_and_what_they_are_made_of() {
    // is_conditional, is_call, is_return, is_indirect
    for (instruction, expected) in [
        (0x4800_0010, [false, false, false, false]), // b
        (0x4182_0011, [true, true, false, false]),   // beql
        (0x4d82_0020, [true, false, true, true]),    // beqlr
        (0x4c82_0420, [true, false, false, true]),   // bnectr
        (0x4c82_0421, [true, true, false, true]),    // bnectrl
        (0x429f_0005, [false, false, false, false]), // bcl 20,31,$+4
    ] {
        let branch = Branch::decode(instruction, 0).unwrap();
        let seen = [
            branch.is_conditional(),
            branch.is_call(),
            branch.is_return(),
            branch.is_indirect(),
        ];
        assert_eq!(seen, expected, "{instruction:#x}");
    }
}

/// Returns each type alone, in perf's order, with its name.
fn types() -> [(&'static str, BranchTypes); 7] {
    let only = |set: fn(&mut BranchTypes)| {
        let mut types = BranchTypes::default();
        set(&mut types);
        types
    };
    [
        ("any", only(|types| types.any = true)),
        ("any_call", only(|types| types.any_call = true)),
        ("any_ret", only(|types| types.any_return = true)),
        ("ind_call", only(|types| types.indirect_call = true)),
        ("cond", only(|types| types.conditional = true)),
        ("call", only(|types| types.call = true)),
        ("ind_jmp", only(|types| types.indirect_jump = true)),
    ]
}

#[test]
fn what_each_type_contains() {
    for (instruction, expected) in [
        (0x4800_0010, "any"),                        // b
        (0x4182_0010, "any cond"),                   // beq
        (0x4200_fff0, "any cond"),                   // bdnz
        (0x4800_0011, "any any_call call"),          // bl
        (0x4182_0011, "any any_call cond call"),     // beql
        (0x429f_0005, "any"),                        // bcl 20,31,$+4
        (0x4e80_0020, "any any_ret"),                // blr
        (0x4d82_0020, "any any_ret cond"),           // beqlr
        (0x4e80_0021, "any any_call ind_call"),      // blrl
        (0x4e80_0420, "any ind_jmp"),                // bctr
        (0x4c82_0420, "any cond ind_jmp"),           // bnectr
        (0x4e80_0421, "any any_call ind_call"),      // bctrl
        (0x4c82_0421, "any any_call ind_call cond"), // bnectrl
        (0x4e80_0460, "any ind_jmp"),                // btar
        (0x4e80_0820, "any ind_jmp"),                // bclr 20,0,1
    ] {
        let branch = Branch::decode(instruction, 0x10000).unwrap();
        let seen = types()
            .into_iter()
            .filter(|(_, types)| types.contains(branch));
        let seen: Vec<_> = seen.map(|(name, _)| name).collect();
        assert_eq!(seen.join(" "), expected, "{instruction:#x}");
        assert!(!BranchTypes::default().contains(branch));
    }
    for (name, types) in types() {
        assert_eq!(types.is_all(), name == "any");
    }
}

#[test]
fn hardware_filters() {
    let exact = |ifm| HardwareFilter { ifm, exact: true };
    let more = |ifm| HardwareFilter { ifm, exact: false };
    for (pvr, conditional) in [
        (POWER8, more(0)),
        (POWER9, more(0)),
        (POWER10, more(3)),
        (POWER11, more(3)),
    ] {
        let expected = [
            exact(0),
            more(1),
            more(0),
            more(1),
            conditional,
            more(1),
            more(0),
        ];
        for ((name, types), expected) in types().into_iter().zip(expected) {
            assert_eq!(model(pvr).branch_filter(types), expected, "{pvr:#x} {name}");
        }
        let filter = |types| model(pvr).branch_filter(types);
        let both_calls = BranchTypes {
            call: true,
            indirect_call: true,
            ..BranchTypes::default()
        };
        assert_eq!(filter(both_calls), more(1));
        let not_only_calls = BranchTypes {
            any_return: true,
            ..both_calls
        };
        assert_eq!(filter(not_only_calls), more(0));
        let all = BranchTypes {
            any: true,
            ..not_only_calls
        };
        assert_eq!(filter(all), exact(0));
        assert_eq!(filter(BranchTypes::default()), more(0));
    }
}

#[test]
fn strict_hardware_filters_are_those_of_the_built_in_driver() {
    let old = [Some(0), Some(1), None, None, None, None, None];
    let new = [Some(0), Some(1), None, Some(2), Some(3), None, None];
    for (pvr, expected) in [(POWER8, old), (POWER9, old), (POWER10, new), (POWER11, new)] {
        let strict = |types| model(pvr).strict_branch_filter(types);
        for ((name, types), ifm) in types().into_iter().zip(expected) {
            let expected = ifm.map(|ifm| HardwareFilter { ifm, exact: true });
            let expected = expected.ok_or(Refusal::NoHardwareBranchFilter);
            assert_eq!(strict(types), expected, "{pvr:#x} {name}");
        }
        let refused = Err(Refusal::NoHardwareBranchFilter);
        assert_eq!(strict(BranchTypes::default()), refused);
        let pair = BranchTypes {
            any: true,
            any_call: true,
            ..BranchTypes::default()
        };
        assert_eq!(strict(pair), refused);
    }
}

fn records(entries: &[u64]) -> Vec<BhrbRecord> {
    isa207::bhrb_records(entries.iter().copied()).collect()
}

/// Returns a branch whose target is in the instruction.
fn direct(from: u64) -> BhrbRecord {
    BhrbRecord {
        from,
        to: None,
        mispredicted: false,
    }
}

/// Returns a branch whose target is in the BHRB.
fn indirect(from: u64, to: u64) -> BhrbRecord {
    BhrbRecord {
        to: Some(to),
        ..direct(from)
    }
}

#[test]
fn bhrb_entries_in_pairs_and_alone() {
    assert_eq!(records(&[]), []);
    assert_eq!(records(&[0]), []);
    assert_eq!(records(&[0x1000, 0x2000]), [direct(0x1000), direct(0x2000)]);
    // The target comes first.
    assert_eq!(
        records(&[0x3002, 0x1000, 0x2000]),
        [indirect(0x1000, 0x3000), direct(0x2000)]
    );
    // Nothing is read after an empty entry.
    assert_eq!(records(&[0x1000, 0, 0x2000]), [direct(0x1000)]);
    let kernel = 0xc000_0000_0000_1000;
    assert_eq!(records(&[0x3002, kernel]), [indirect(kernel, 0x3000)]);
}

#[test]
fn bhrb_entries_that_do_not_fit() {
    // The first of two consecutive targets has no branch.
    assert_eq!(
        records(&[0x3002, 0x4002, 0x1000]),
        [indirect(0x1000, 0x4000)]
    );
    // A target at the end, or before an empty entry, has no branch either.
    assert_eq!(records(&[0x1000, 0x3002]), [direct(0x1000)]);
    assert_eq!(records(&[0x1000, 0x3002, 0, 0x2000]), [direct(0x1000)]);
    // Entries without an address are no branches. Such an entry after a target separates the target
    // from its branch.
    for flags in 1..=3 {
        assert_eq!(records(&[flags, 0x1000]), [direct(0x1000)]);
        assert_eq!(records(&[0x3002, flags, 0x1000]), [direct(0x1000)]);
    }
}

#[test]
fn bhrb_predictions() {
    let wrong = |entries| records(entries).first().map(|record| record.mispredicted);
    assert_eq!(wrong(&[0x1000]), Some(false));
    assert_eq!(wrong(&[0x1001]), Some(true));
    // A pair can mispredict the target, whether the branch is taken, or both.
    assert_eq!(wrong(&[0x3002, 0x1000]), Some(false));
    assert_eq!(wrong(&[0x3003, 0x1000]), Some(true));
    assert_eq!(wrong(&[0x3002, 0x1001]), Some(true));
    assert_eq!(wrong(&[0x3003, 0x1001]), Some(true));
    // The bit of a target without a branch does not apply to the next branch.
    assert_eq!(wrong(&[0x4003, 0x3002, 0x1000]), Some(false));
    assert_eq!(records(&[0x3003, 0x1001])[0].from, 0x1000);
}

#[test]
fn the_bhrb_is_read_no_further_than_needed() {
    let read = std::cell::Cell::new(0);
    let count = |entry: u64| {
        read.set(read.get() + 1);
        entry
    };
    let mut some = isa207::bhrb_records([0x1000, 0, 0x2000].into_iter().map(count));
    assert_eq!(some.next(), Some(direct(0x1000)));
    assert_eq!(read.get(), 1);
    assert_eq!(some.next(), None);
    assert_eq!(read.get(), 2);
}

// SPDX-License-Identifier: GPL-2.0

//! Codes with reserved or contradictory bits, on every CPU.

use super::*;
use isa207::Isa;

#[test]
fn reserved_bits() {
    let reserved = |pvr| {
        let bits = 0..64;
        let refused = bits.filter(|bit| validate(pvr, 1 << bit) == Err(Refusal::ReservedBits));
        refused.fold(0u64, |all, bit| all | 1 << bit)
    };
    assert_eq!(reserved(POWER8), 0x0ffc_0000_0000_0600);
    assert_eq!(reserved(POWER9), 0x0ff0_0000_0000_0200);
    assert_eq!(reserved(POWER10), 0);
    // Bits of POWER10's data source and radix scope.
    assert_eq!(
        validate(POWER9, 0x13_4000_0001_c040),
        Err(Refusal::ReservedBits)
    );
    assert_eq!(validate(POWER9, 0x14242), Err(Refusal::ReservedBits));
}

#[test]
fn fixed_counters() {
    for pvr in [POWER8, POWER9, POWER10] {
        assert_eq!(validate(pvr, 0x500fa), Ok(()));
        assert_eq!(validate(pvr, 0x600f4), Ok(()));
        for code in [
            0x501e0,
            0x6001e,
            0x501fa,
            0x2500fa,
            0x2600f4,
            0x500f4,
            0x35_3405_00fa,
        ] {
            assert_eq!(validate(pvr, code), Err(Refusal::FixedCounter), "{code:#x}");
        }
        for pmc in 7..=15 {
            assert_eq!(validate(pvr, pmc << 16 | 0x1e), Err(Refusal::NoSuchPmc));
        }
    }
}

#[test]
fn sample_modes() {
    for pvr in [POWER9, POWER10] {
        for mode in [0x3, 0x5, 0x7, 0x9, 0xb, 0xd, 0x19, 0x1d, 0x1a, 0x1e, 0x1f] {
            let code = mode << 24 | 0x401e0;
            assert_eq!(validate(pvr, code), Err(Refusal::SampleModeReserved));
        }
    }
    assert_eq!(
        validate(POWER9, 0x0c04_01e0),
        Err(Refusal::SampleModeReserved)
    );
    assert_eq!(validate(POWER10, 0x0c04_01e0), Ok(()));
    assert_eq!(
        validate(POWER10, 0x1004_01e0),
        Err(Refusal::SampleModeReserved)
    );
    assert_eq!(validate(POWER9, 0x1004_01e0), Ok(()));
    for pvr in [POWER8, POWER9, POWER10] {
        assert_eq!(validate(pvr, 0x104_01e0), Ok(()));
        assert_eq!(
            validate(pvr, 0x104_00e0),
            Err(Refusal::SampleModeWithoutMark)
        );
    }
}

#[test]
fn thresholds() {
    for pvr in [POWER9, POWER10] {
        for code in [0xf0_3404_01e0, 0x0f_3404_01e0, 0xf0_0001_001e] {
            assert_eq!(validate(pvr, code), Err(Refusal::ThresholdEventReserved));
        }
    }
    for pvr in [POWER8, POWER9, POWER10] {
        assert_eq!(
            validate(pvr, 0x12_0001_001e),
            Err(Refusal::ThresholdWithoutSelect)
        );
        assert_eq!(validate(pvr, 0x12_2001_001e), Ok(()));
        assert_eq!(validate(pvr, 0x2001_001e), Ok(()));
    }
    assert_eq!(
        validate(POWER9, 0x20 << 40 | 0x1001e),
        Err(Refusal::ThresholdWithoutSelect)
    );
    // A small value needs no exponent.
    assert_eq!(validate(POWER9, 0x10 << 40 | 0x2001_001e), Ok(()));
}

#[test]
fn sdar_mode_of_a_marked_event() {
    assert_eq!(
        validate(POWER9, 1 << 50 | 0x401e0),
        Err(Refusal::SdarModeOnMarked)
    );
    assert_eq!(
        validate(POWER10, 1 << 22 | 0x401e0),
        Err(Refusal::SdarModeOnMarked)
    );
    assert_eq!(validate(POWER10, 1 << 22 | 0x400e0), Ok(()));
    // The default mode, which the kernel's l3_bank_test names.
    assert_eq!(validate(POWER10, 0x84918f), Ok(()));
    assert_eq!(validate(POWER9, 2 << 50 | 0x401e0), Ok(()));
}

#[test]
fn cache_select_field_of_power9() {
    assert_eq!(validate(POWER9, 0x21c040), Ok(()));
    assert_eq!(
        validate(POWER9, 0x41c040),
        Err(Refusal::CacheSelOutsideUnit)
    );
    assert_eq!(
        validate(POWER9, 0x146080),
        Err(Refusal::CacheSelOutsideUnit)
    );
    // The L3 bank of POWER8, in the kernel's l3_bank_test.
    assert_eq!(validate(POWER9, 0x84918f), Ok(()));
    assert_eq!(
        validate(POWER9, 0x847080),
        Err(Refusal::CacheSelOutsideUnit)
    );
}

#[test]
fn other_attribute_words() {
    for (pvr, limit) in [(POWER8, 0), (POWER9, 0), (POWER10, 0x3_ffff)] {
        let words = |config1, config2| {
            model(pvr).validate_event(&Request {
                config1,
                config2,
                ..request(0x2001_001e)
            })
        };
        assert_eq!(words(limit, 0), Ok(()));
        assert_eq!(words(limit + 1, 0), Err(Refusal::Config1));
        assert_eq!(words(0, 1 << 40), Err(Refusal::Config2));
    }
    // A value to compare with, without a threshold.
    let mut req = request(0x1001e);
    req.config1 = 1;
    assert_eq!(
        model(POWER10).validate_event(&req),
        Err(Refusal::ThresholdWithoutSelect)
    );
}

#[test]
fn every_reason_is_a_sentence_of_its_own() {
    use std::collections::HashSet;
    let mut all: Vec<_> = Selector::ALL.map(Refusal::Conflict).into();
    all.extend([
        Refusal::ReservedBits,
        Refusal::Config1,
        Refusal::Config2,
        Refusal::NoSuchPmc,
        Refusal::FixedCounter,
        Refusal::Blacklisted,
        Refusal::SampleModeReserved,
        Refusal::SampleModeWithoutMark,
        Refusal::ThresholdEventReserved,
        Refusal::ThresholdWithoutSelect,
        Refusal::ThresholdMantissa,
        Refusal::ThresholdOnFabMatch,
        Refusal::SdarModeOnMarked,
        Refusal::CacheSelOutsideUnit,
        Refusal::CacheSelNeedsHypervisor,
        Refusal::L2l3SelOutsideUnit,
        Refusal::EbbWithoutPmc,
        Refusal::BhrbWithoutEbb,
        Refusal::IfmWithoutBhrb,
        Refusal::NoSuchBranchFilter,
        Refusal::BranchFilterOfEbb,
        Refusal::NoBhrb,
        Refusal::NoHardwareBranchFilter,
        Refusal::TooManyEvents,
        Refusal::PmcTaken,
        Refusal::ProgrammableCountersFull,
        Refusal::BusNeedsPmc4,
    ]);
    let reasons: HashSet<_> = all.iter().map(Refusal::reason).collect();
    assert_eq!(reasons.len(), all.len());
    assert!(reasons.iter().all(|r| r.len() > 15 && !r.ends_with('.')));
}

#[test]
fn nothing_wants_a_bhrb_that_is_not_there() {
    let platform = Platform {
        without_bhrb: true,
        ..Platform::default()
    };
    let architected = [Isa::V300, Isa::V31].map(|isa| CpuModel::architected(isa).unwrap());
    let known = [POWER8, POWER9, POWER10].map(model);
    for model in architected.into_iter().chain(known) {
        let solve = |code, stack| {
            let mut req = request(code);
            req.branch_filter_ifm = stack;
            model.solve(&[req], platform).map(|_| ())
        };
        // An EBB event with a filter and without, and a branch stack.
        assert_eq!(solve(0xd << 60 | 0x100f0, None), Err(Refusal::NoBhrb));
        assert_eq!(solve(0xc << 60 | 0x100f0, None), Err(Refusal::NoBhrb));
        assert_eq!(solve(0x100f0, Some(0)), Err(Refusal::NoBhrb));
        assert_eq!(solve(0x8 << 60 | 0x100f0, None), Ok(()));
        assert_eq!(solve(0x100f0, None), Ok(()));
    }
}

#[test]
fn branch_stack_beside_an_ebb_event_with_the_bhrb() {
    let differ = Err(Refusal::BranchFilterOfEbb);
    for pvr in [POWER8, POWER9, POWER10] {
        let with_stack = |code, stack| {
            let mut req = request(code);
            req.branch_filter_ifm = stack;
            model(pvr).validate_event(&req)
        };
        // EBB, BHRB, and the filters 1 and 0, in bits 63 to 60.
        assert_eq!(with_stack(0xd << 60 | 0x1001e, Some(1)), Ok(()));
        assert_eq!(with_stack(0xd << 60 | 0x1001e, Some(2)), differ);
        assert_eq!(with_stack(0xc << 60 | 0x1001e, Some(1)), differ);
        assert_eq!(with_stack(0x8 << 60 | 0x1001e, Some(1)), Ok(()));
        // In a group, a branch stack cannot change an EBB program's filter.
        let mut reqs = requests(&[0xd << 60 | 0x1001e, 0x8 << 60 | 0x20002]);
        for (stack, expected) in [
            (None, Ok(1)),
            (Some(1), Ok(1)),
            (Some(0), Err(Refusal::Conflict(Selector::BranchFilter))),
        ] {
            reqs[1].branch_filter_ifm = stack;
            let ifm = solve(pvr, &reqs).map(|answer| answer.mmcr.ifm());
            assert_eq!(ifm, expected);
        }
    }
}

// SPDX-License-Identifier: GPL-2.0

//! POWER8.

use isa207::Mmcr;

use super::*;

#[test]
fn cycles_on_pmc1() {
    // PM_CYC on PMC1: select 0x1e in MMCR1[32:39]. SDAR on a TLB miss.
    let answer = group(POWER8, &[0x1e]).unwrap();
    assert_eq!(placements(&answer), [(1, 0x1e)]);
    let expected = Mmcr {
        mmcr0: 0x8010, // PMC1CE, FC56
        mmcr1: 0x1e00_0000,
        mmcr2: 0,
        mmcra: 0x400_0000_0000, // SDAR mode 1
        mmcr3: 0,
    };
    assert_eq!(answer.mmcr, expected);
}

#[test]
fn unit_combine_and_l1_qualifier() {
    // PM_DATA_ALL_FROM_DL2L3_MOD: PMC4, unit 0xc, select 0x48, L1 qualifier 2.
    // PM_L1_PREF: any counter, unit 0xd, combine, select 0xb8.
    let answer = group(POWER8, &[0x64c048, 0x0d8b8]).unwrap();
    assert_eq!(placements(&answer), [(4, 0x64c048), (1, 0x0d8b8)]);
    let units = 0xd00c << 48;
    let qualifier = 2 << 46;
    let combine = 1 << 35;
    let selects = 0xb800_0048;
    assert_eq!(answer.mmcr.mmcr1, units | qualifier | combine | selects);
    assert_eq!(answer.mmcr.mmcr0, 0xc010);
}

#[test]
fn an_l1_qualifier_binds_only_those_who_have_one() {
    assert!(group(POWER8, &[0x64c048, 0x1001e]).is_ok());
    assert!(group(POWER8, &[0x64c048, 0x63c048]).is_ok());
    let refused = conflict(Selector::L1Qualifier);
    assert_eq!(group(POWER8, &[0x64c048, 0x53404c]), refused);
}

#[test]
fn l2_and_l3_selects_stay_with_the_hypervisor() {
    let check = |code| validate(POWER8, code);
    // The L3 bank is not a select.
    assert_eq!(check(0x819082), Ok(()));
    assert_eq!(check(0x117080), Err(Refusal::CacheSelNeedsHypervisor));
    assert_eq!(check(0x817080), Err(Refusal::CacheSelOutsideUnit));
    assert_eq!(check(0x81001e), Err(Refusal::CacheSelOutsideUnit));
    assert_eq!(check(0x11001e), Err(Refusal::CacheSelOutsideUnit));
}

#[test]
fn fabric_match_takes_the_threshold_bits() {
    // PM_MRK_FAB_RSP_MATCH, marked, matching 0x5a.
    let answer = group(POWER8, &[0x5a_0003_0156]).unwrap();
    assert_eq!(answer.mmcr.mmcr1, 0x5a << 36 | 0x5600);
    assert_eq!(answer.mmcr.mmcra, 0x400_0000_0001);

    let refused = conflict(Selector::FabMatch);
    assert_eq!(group(POWER8, &[0x5a_0003_0156, 0x5b_0004_f152]), refused);
    assert_eq!(
        group(POWER8, &[0x5a_2003_0156]),
        Err(Refusal::ThresholdOnFabMatch)
    );
    // The lowest bit of the select chooses edges.
    assert_eq!(
        group(POWER8, &[0x5a_2003_0157]),
        Err(Refusal::ThresholdOnFabMatch)
    );
}

#[test]
fn thresholds() {
    // PM_MRK_INST_CMPL, sample mode 1; threshold select 3, start 2, stop 1,
    // exponent 1, mantissa 0x41.
    let code = 0xc1 << 40 | 0x21 << 32 | 3 << 29 | 1 << 24 | 0x401e0;
    let answer = group(POWER8, &[code]).unwrap();
    let compare = 0xc1 << 32;
    let select = 3 << 16 | 0x21 << 8;
    let marking = 1 << 1 | 1;
    assert_eq!(answer.mmcr.mmcra, 1 << 42 | compare | select | marking);
    assert!(answer.mmcr.has_threshold());

    // On this CPU an event without a threshold does not count beside one with a threshold,
    let refused = conflict(Selector::Threshold);
    assert_eq!(group(POWER8, &[code, 0x1001e]), refused);
    // except on PMC5 or PMC6.
    assert!(group(POWER8, &[code, 0x500fa, 0x600f4]).is_ok());
}

#[test]
fn alternatives_get_out_of_the_way() {
    // PM_MRK_ST_CMPL moves from PMC1 to PMC3.
    let answer = group(POWER8, &[0x10134, 0x1001e]).unwrap();
    assert_eq!(placements(&answer), [(3, 0x301e2), (1, 0x1001e)]);
    // PM_RUN_CYC moves from PMC2 to PMC6, PM_RUN_INST_CMPL from PMC4 to PMC5.
    let codes = [0x200f4, 0x400fa, 0x20036, 0x4000a];
    let answer = group(POWER8, &codes).unwrap();
    let expected = [(2, 0x200f4), (5, 0x500fa), (4, 0x40036), (1, 0x1e054)];
    assert_eq!(placements(&answer), expected);
    let demands: Vec<_> = answer.demands().collect();
    let again = model(POWER8).assign(demands.iter().copied());
    assert_eq!(again, Ok(*answer));
    // Six events have exactly one assignment, whether or not the first has an alternative code.
    for first in [0x10068, 0x1e054] {
        let codes = [first, 0x200f4, 0x400fa, 0x20036, 0x200f2, 0x3e054];
        let answer = group(POWER8, &codes).unwrap();
        let found: Vec<_> = answer.placements().map(|(_, code)| code.0).collect();
        assert_eq!(found, [first, 0x600f4, 0x500fa, 0x20036, 0x300f2, 0x400f0]);
    }
}

#[test]
fn run_cycles_are_cycles_only_for_a_task() {
    let codes = [0x1e, 0x10068, 0x200fd, 0x300fe, 0x400f6];
    let full = Err(Refusal::ProgrammableCountersFull);
    assert_eq!(group(POWER8, &codes), full);
    let answer = task_group(POWER8, &codes).unwrap();
    assert_eq!(placements(&answer)[0], (6, 0x600f4));
}

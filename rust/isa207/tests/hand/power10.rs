// SPDX-License-Identifier: GPL-2.0

//! POWER10 and Power11.

use isa207::{
    Isa,
    Mmcr, //
};

use super::*;

/// MMCRA\[26\]: the BHRB is off.
const BHRBRD: u64 = 1 << 37;
/// MMCRA\[20:21\]: SDAR on a data cache miss.
const SDAR_DCACHE: u64 = 2 << 42;

#[test]
fn l2_event() {
    // PM_L2_ST: PMC4, unit 6, select 0x80, L2/L3 select 1.
    let answer = group(POWER10, &[0x100_0004_6080]).unwrap();
    let expected = Mmcr {
        mmcr0: 0x4310, // PMCjCE, PMCCEXT, CC56RUN, FC56
        mmcr1: 0x0006_0000_0000_0080,
        mmcr2: 8, // bits 56:60
        mmcra: BHRBRD | SDAR_DCACHE,
        mmcr3: 0,
    };
    assert_eq!(answer.mmcr, expected);

    assert!(group(POWER10, &[0x100_0004_6080, 0x100_0002_6880]).is_ok());
    let refused = conflict(Selector::L2l3Select);
    assert_eq!(group(POWER10, &[0x100_0004_6080, 0x26880]), refused);
    assert_eq!(
        group(POWER10, &[0x100_0004_0080]),
        Err(Refusal::L2l3SelOutsideUnit)
    );
}

#[test]
fn data_source_match() {
    // PM_DATA_FROM_L3: PMC1, unit 0xc, select 0x40, source 0x9a (15 bits from bit 45 on). The other
    // event with a source gets PMC2.
    let answer = group(POWER10, &[0x13_4000_0001_c040, 0x3_4000_0000_c040]).unwrap();
    assert_eq!(placements(&answer)[1].0, 2);
    assert_eq!(answer.mmcr.mmcr3, 0x9a << 49 | 0x1a << 34);
    assert_eq!(answer.mmcr.mmcr1, 0xcc << 56 | 0x4040_0000);
}

#[test]
fn cache_selects_agree() {
    let refused = conflict(Selector::L1Qualifier);
    assert_eq!(group(POWER10, &[0x1100fc, 0x23e054]), refused);
    let answer = group(POWER10, &[0x1100fc, 0x13e054]).unwrap();
    assert_eq!(answer.mmcr.mmcr1 >> 46 & 3, 1);
    // Events on PMC5 and PMC6 have no cache select,
    let answer = group(POWER10, &[0x500fa, 0x600f4, 0x22c040]).unwrap();
    assert_eq!(answer.mmcr.mmcr0, 0x4300);
    // and neither have events of the L2 and L3 unit.
    assert!(group(POWER10, &[0x1100fc, 0x26880]).is_ok());
    assert_eq!(
        group(POWER10, &[0x126880]),
        Err(Refusal::CacheSelOutsideUnit)
    );
}

#[test]
fn radix_scopes_agree() {
    let refused = conflict(Selector::RadixScope);
    assert_eq!(group(POWER10, &[0x14242, 0x200fc]), refused);
    let answer = group(POWER10, &[0x14242, 0x24242]).unwrap();
    assert_eq!(answer.mmcr.mmcr1 >> 45 & 1, 1);
}

#[test]
fn threshold_numbers_become_exponent_and_mantissa() {
    let compare = |number| {
        let mut reqs = requests(&[0x35_3404_01e0]);
        reqs[0].config1 = number;
        let mmcra = solve(POWER10, &reqs).map(|a| a.mmcr.mmcra)?;
        // Select 1, start 3, stop 5, sample mode 0x14, marked.
        assert_eq!(mmcra & 0xff_ffff, 0x1_3551);
        Ok(((mmcra >> 53) & 7, (mmcra >> 45) & 0xff))
    };
    assert_eq!(compare(0), Ok((0, 0)));
    assert_eq!(compare(255), Ok((0, 255)));
    assert_eq!(compare(256), Ok((1, 64)));
    assert_eq!(compare(1000), Ok((1, 250)));
    assert_eq!(compare(1023), Ok((1, 255)));
    assert_eq!(compare(1024), Ok((2, 64)));
    assert_eq!(compare(261_120), Ok((5, 255)));
    // A larger number is replaced by the largest.
    assert_eq!(compare(0x3_ffff), Ok((5, 255)));
    assert_eq!(compare(0x4_0000), Err(Refusal::Config1));
}

#[test]
fn thresholds_agree() {
    let with = |numbers: [u64; 2]| {
        let mut reqs = requests(&[0x35_3404_01e0, 0x35_3401_01ec]);
        reqs[0].config1 = numbers[0];
        reqs[1].config1 = numbers[1];
        solve(POWER10, &reqs)
    };
    let refused = conflict(Selector::Threshold);
    assert_eq!(with([1000, 2000]), refused);
    assert!(with([1000, 1000]).is_ok());
    // These two numbers have the same register value.
    assert!(with([1000, 1001]).is_ok());

    let pair = |second| group(POWER10, &[0x35_3404_01e0, second]);
    let samples = conflict(Selector::SampleMode);
    assert_eq!(pair(0x35_3c01_01ec), samples);
    assert_eq!(pair(0x34_3401_01ec), refused);
    assert_eq!(pair(0x35_5401_01ec), refused);
    assert!(pair(0x1001e).is_ok());
}

#[test]
fn cycles_and_instructions_find_their_counters() {
    for (flexible, fixed) in [(0x1e, (6, 0x600f4)), (0x2, (5, 0x500fa))] {
        let codes = [flexible, 0x100fc, 0x200fa, 0x300fc, 0x400fc];
        let answer = group(POWER10, &codes).unwrap();
        assert_eq!(placements(&answer)[0], fixed);
        // With a free counter, the code does not change.
        let answer = group(POWER10, &codes[..4]).unwrap();
        assert_eq!(placements(&answer)[0], (4, flexible));
    }
    assert_eq!(group(POWER10, &[0x1e; 7]), Err(Refusal::TooManyEvents));
}

#[test]
fn event_based_branches() {
    const EBB: u64 = 1 << 63;
    const BHRB: u64 = 1 << 62;
    let group = |codes: &[u64]| task_group(POWER10, codes);
    assert_eq!(group(&[EBB | 0x1e]), Err(Refusal::EbbWithoutPmc));
    assert_eq!(group(&[BHRB | 0x1001e]), Err(Refusal::BhrbWithoutEbb));
    assert_eq!(
        group(&[EBB | 1 << 60 | 0x1001e]),
        Err(Refusal::IfmWithoutBhrb)
    );

    let answer = group(&[EBB | 0x1001e, EBB | 0x20002, EBB | 0x600f4]).unwrap();
    assert_eq!(answer.mmcr.mmcra, BHRBRD | SDAR_DCACHE);
    let mixed = conflict(Selector::Ebb);
    assert_eq!(group(&[EBB | 0x1001e, 0x20002]), mixed);
    // An EBB event keeps the counter that it names.
    assert_eq!(
        group(&[EBB | 0x600f4, EBB | 0x600f4]),
        Err(Refusal::PmcTaken)
    );

    // The BHRB records if one event uses it; all events that use it must agree on the filter.
    let ifm = |n: u64| EBB | BHRB | n << 60;
    let answer = group(&[ifm(2) | 0x1001e, EBB | 0x20002]).unwrap();
    assert_eq!(answer.mmcr.mmcra, 2 << 30 | SDAR_DCACHE);
    let filters = conflict(Selector::BranchFilter);
    assert_eq!(group(&[ifm(2) | 0x1001e, ifm(0) | 0x20002]), filters);
}

#[test]
fn branch_stacks_switch_the_bhrb_on() {
    let mut reqs = requests(&[0x600f4, 0x500fa]);
    reqs[1].branch_filter_ifm = Some(0);
    let answer = solve(POWER10, &reqs).unwrap();
    assert_eq!(answer.mmcr.mmcra, SDAR_DCACHE);
    reqs[1].branch_filter_ifm = Some(3);
    let answer = solve(POWER10, &reqs).unwrap();
    assert_eq!(answer.mmcr.mmcra, SDAR_DCACHE | 3 << 30);
    assert!(answer.mmcr.ifm() == 3 && !answer.mmcr.has_threshold());
    // Branches of the hypervisor are not recorded, so the event may count the hypervisor.
    reqs[1].exclude.kernel = true;
    let answer = solve(POWER10, &reqs).unwrap();
    assert_eq!(answer.mmcr.mmcr2, 1 << 27);
    assert!(!answer.mmcr.records_hypervisor(Isa::V31));
}

#[test]
fn nothing_asked_nothing_counted() {
    let answer = solve(POWER10, &[]).unwrap();
    assert_eq!(placements(&answer), []);
    let expected = Mmcr {
        mmcr0: 0x310,
        mmcra: BHRBRD,
        ..Mmcr::default()
    };
    assert_eq!(answer.mmcr, expected);
}

// SPDX-License-Identifier: GPL-2.0

//! POWER9.

use isa207::{
    Demand,
    Exclude,
    Isa,
    Mmcr, //
};

use super::*;

#[test]
fn loads_with_latency() {
    // mem-loads: PM_MRK_INST_CMPL on PMC4; sample mode 0x14 (eligibility 5, mode 0); threshold
    // select 1, start 3, stop 4; no SDAR mode, because the event is marked.
    let answer = group(POWER9, &[0x34_3404_01e0]).unwrap();
    assert_eq!(placements(&answer), [(4, 0x34_3404_01e0)]);
    let expected = Mmcr {
        mmcr0: 0x4010, // PMCjCE, FC56
        mmcr1: 0xe0,
        mmcr2: 0,
        mmcra: 0x1_3451,
        mmcr3: 0,
    };
    assert_eq!(answer.mmcr, expected);
}

#[test]
fn threshold_compare_is_in_bits_9_to_18() {
    // Exponent 2, mantissa 0x3e, in bits 9:18 of MMCRA.
    let answer = group(POWER9, &[0x1_3e35_3404_01e0]).unwrap();
    assert_eq!(answer.mmcr.mmcra, 0x13e << 45 | 0x1_3551);
    assert_eq!(
        group(POWER9, &[0x1_1e35_3404_01e0]),
        Err(Refusal::ThresholdMantissa)
    );
}

#[test]
fn the_bus_needs_pmc4() {
    let alone = group(POWER9, &[0x26080]);
    assert_eq!(alone, Err(Refusal::BusNeedsPmc4));
    assert_eq!(validate(POWER9, 0x26080), Ok(()));
    let demand = model(POWER9).demand(&request(0x26080), Platform::default());
    let together = Demand::check_compatible(demand.into_iter());
    assert_eq!(together, Err(Refusal::BusNeedsPmc4));

    // Two events of unit 6, combine 0 and 2, select 0x80 for both.
    let answer = group(POWER9, &[0x46080, 0x36880]).unwrap();
    assert_eq!(answer.mmcr.mmcr1, 0x66 << 48 | 2 << 34 | 0x8080);
    // The order does not matter.
    assert!(group(POWER9, &[0x36880, 0x46080]).is_ok());
    // This includes an event whose alternative is on a counter in use, and one that can move.
    let answer = group(POWER9, &[0x46080, 0x36880, 0x400f0, 0x200f4]);
    assert_eq!(answer, Err(Refusal::PmcTaken));
    let codes = [0x46080, 0x36880, 0x400fa, 0x1001e];
    let answer = group(POWER9, &codes).unwrap();
    assert_eq!(placements(&answer)[2], (5, 0x500fa));

    // The events that remain when the one on PMC4 is removed count as before.
    let two = [0x36880, 0x1001e].map(request);
    let demands = two.map(|req| model(POWER9).demand(&req, Platform::default()).unwrap());
    let whole = group(POWER9, &[0x46080, 0x36880, 0x1001e]).unwrap();
    let remaining =
        model(POWER9).assign_remaining(demands.into_iter().zip(whole.pmcs.iter().skip(1)));
    assert!(remaining.pmcs.iter().eq(whole.pmcs.iter().skip(1)));
    let unit_of_pmc3 = |mmcr1: u64| mmcr1 >> 52 & 0xf;
    let units = [remaining.mmcr.mmcr1, whole.mmcr.mmcr1].map(unit_of_pmc3);
    assert_eq!(units, [6, 6]);
    assert!(model(POWER9).solve(&two, Platform::default()).is_err());

    let refused = conflict(Selector::BusEvent);
    let other = group(POWER9, &[0x46080, 0x36882]);
    assert_eq!(other, refused);
}

#[test]
fn frozen_states() {
    // MMCR2 has nine bits for each counter. The first three are FCS, FCP0 and FCP1, the sixth
    // FCWAIT, the seventh FCH.
    let mut reqs = requests(&[0x1001e, 0x600f4]);
    reqs[0].exclude.kernel = true;
    reqs[1].exclude = Exclude {
        user: true,
        kernel: true,
        hv: true,
        idle: true,
    };
    let pmc6 = |bits: u64| bits << 10;
    // PMC5 has no event beside PMC6, so it is frozen in the states in which both events are.
    let pmc5 = |bits: u64| bits << 19;
    let guest = model(POWER9).solve(&reqs, Platform::default()).unwrap();
    let all = pmc6(0b1_1000_1100);
    assert_eq!(guest.mmcr.mmcr2, 1 << 63 | pmc5(0b1_0000_0000) | all);
    assert_eq!(guest.mmcr.mmcr0, 0x4000_c000); // FCS, PMC1CE, PMCjCE

    let platform = Platform {
        hypervisor_mode: true,
        ..Platform::default()
    };
    let bare = model(POWER9).solve(&reqs, platform).unwrap();
    let common = pmc5(0b0_0000_0100);
    assert_eq!(bare.mmcr.mmcr2, 1 << 57 | common | pmc6(0b0_1100_1100));
    assert_eq!(bare.mmcr.mmcr0, 0xc001); // PMC1CE, PMCjCE, FCH
    assert!(bare.is_frozen_in_kernel(platform));
    // The first event counts in the hypervisor.
    assert!(!guest.is_frozen_in_kernel(Platform::default()));

    // On bare metal exclude_hv is ignored.
    reqs[1].exclude.kernel = false;
    let bare = model(POWER9).solve(&reqs, platform).unwrap();
    assert_eq!(bare.mmcr.mmcr2, 1 << 57 | pmc6(0b0_1100_1000));
    // One event counts in the kernel, so the kernel's state is not frozen for all.
    assert_eq!(bare.mmcr.mmcr0, 0xc000);

    // The same for PMC6, which has no event beside PMC5.
    reqs[0].code = 0x500fa;
    let alone = model(POWER9)
        .solve(&reqs[..1], Platform::default())
        .unwrap();
    let kernel = 0b1_0000_0000;
    assert_eq!(alone.mmcr.mmcr2, pmc5(kernel) | pmc6(kernel));
}

/// Excluding the kernel excludes the branches of the hypervisor, too.
#[test]
fn branches_of_the_hypervisor() {
    let mmcr = |code: u64, kernel: bool, branch_stack: bool| {
        let mut reqs = requests(&[code]);
        reqs[0].exclude.kernel = kernel;
        reqs[0].branch_filter_ifm = branch_stack.then_some(0);
        let Mmcr { mmcr0, mmcr2, .. } = model(POWER9)
            .solve(&reqs, Platform::default())
            .unwrap()
            .mmcr;
        (mmcr0, mmcr2)
    };
    const EBB: u64 = 1 << 63;
    let (fcs_and_fch, both) = (0x4000_8011, 0b1_0000_0100 << 55);
    assert_eq!(mmcr(0x1001e, true, true), (fcs_and_fch, both));
    assert_eq!(mmcr(EBB | 0x1001e, true, false), (fcs_and_fch, both));
    assert_eq!(mmcr(0x1001e, true, false), (0x4000_8010, 1 << 63));
    assert_eq!(mmcr(0x1001e, false, true), (0x8010, 0));
}

/// If one event counts in the hypervisor, the BHRB records the hypervisor's branches for all
/// events.
#[test]
fn branches_of_the_hypervisor_beside_others() {
    let records = |second: Option<u64>, platform: Platform| {
        let mut reqs = requests(&[0x1001e]);
        reqs[0].branch_filter_ifm = Some(0);
        reqs.extend(second.map(request));
        reqs.iter_mut().for_each(|req| req.exclude.kernel = true);
        let mmcr = model(POWER9).solve(&reqs, platform).unwrap().mmcr;
        mmcr.records_hypervisor(Isa::V300)
    };
    assert!(!records(None, Platform::default()));
    assert!(records(Some(0x20002), Platform::default()));
    // On bare metal the kernel is the hypervisor.
    let bare = Platform {
        hypervisor_mode: true,
        ..Platform::default()
    };
    assert!(!records(Some(0x20002), bare));

    // A stack without the program's branches is empty, so such an event may count the hypervisor.
    let mut reqs = requests(&[0x1001e]);
    reqs[0].branch_filter_ifm = Some(0);
    (reqs[0].exclude.user, reqs[0].exclude.kernel) = (true, true);
    let mmcr = model(POWER9)
        .solve(&reqs, Platform::default())
        .unwrap()
        .mmcr;
    assert!(mmcr.records_hypervisor(Isa::V300) && mmcr.mmcr2 == 0b11 << 62);
}

#[test]
fn sdar_modes() {
    let mmcra = |codes: &[u64]| group(POWER9, codes).map(|a| a.mmcr.mmcra);
    let mode = |n: u64| n << 50 | 0x1001e;
    assert_eq!(mmcra(&[0x1001e]), Ok(2 << 42));
    assert_eq!(mmcra(&[mode(1)]), Ok(1 << 42));
    assert_eq!(mmcra(&[0x2001e, mode(1)]), Ok(1 << 42));
    assert_eq!(mmcra(&[mode(1), 0x401e0]), Ok(1));
    let differ = [mode(1), mode(2) + 0x10000];
    let refused = conflict(Selector::SdarMode);
    assert_eq!(mmcra(&differ), refused);
}

#[test]
fn blacklists_follow_the_revision() {
    let [dtlb_miss, flop, both] = [0x1c058, 0x100f4, 0x4003c];
    let refused = |pvr, code| validate(pvr, code) == Err(Refusal::Blacklisted);
    for (pvr, expected) in [
        (0x004e_1201, [false, true, true]),
        (0x004e_1202, [true, false, true]),
        (0x004e_1203, [false, false, false]),
        // Cumulus has no blacklist.
        (0x004e_2102, [false, false, false]),
        (0x004e_2201, [false, false, false]),
        (0x004e_2202, [false, false, false]),
    ] {
        let found = [dtlb_miss, flop, both].map(|code| refused(pvr, code));
        assert_eq!(found, expected, "{pvr:#x}");
    }
    // EBB events are refused, too, with and without the BHRB and its filter.
    assert!(refused(0x004e_1202, dtlb_miss | 1 << 63));
    assert!(refused(0x004e_1202, dtlb_miss | 0xf << 60));
}

#[test]
fn branch_stacks_and_their_filters() {
    let mut reqs = requests(&[0x1001e, 0x20002]);
    reqs[0].branch_filter_ifm = Some(1);
    let ifm = |reqs: &[_]| solve(POWER9, reqs).map(|a| (a.mmcr.mmcra >> 30) & 3);
    assert_eq!(ifm(&reqs), Ok(1));
    reqs[1].branch_filter_ifm = Some(1);
    assert_eq!(ifm(&reqs), Ok(1));
    // With different filters, the BHRB records every branch.
    reqs[1].branch_filter_ifm = Some(2);
    assert_eq!(ifm(&reqs), Ok(0));
    let strict = Platform {
        strict_branch_filters: true,
        ..Platform::default()
    };
    let refused = conflict(Selector::BranchFilter);
    assert_eq!(model(POWER9).solve(&reqs, strict), refused);
    // The reason is the same if both want the same counter, too: no other code could help.
    reqs[1].code = 0x1001e;
    assert_eq!(model(POWER9).solve(&reqs, strict), refused);
    assert_eq!(ifm(&reqs), Err(Refusal::PmcTaken));
    reqs[1].code = 0x20002;
    reqs[1].branch_filter_ifm = Some(1);
    let answer = model(POWER9).solve(&reqs, strict).unwrap();
    assert_eq!(answer.mmcr.ifm(), 1);
    // An event without branch stack makes no difference.
    reqs[1].branch_filter_ifm = None;
    assert_eq!(model(POWER9).solve(&reqs, strict).unwrap().mmcr.ifm(), 1);
    reqs[1].branch_filter_ifm = Some(4);
    assert_eq!(ifm(&reqs), Err(Refusal::NoSuchBranchFilter));
}

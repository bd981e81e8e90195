// SPDX-License-Identifier: GPL-2.0

//! Checks of the control registers that the kernel sets for a program: for a group according to the
//! codes of its events, and for a program without a group so that it can read nothing.

use super::user;
use crate::{history::oracle::is_marked, perf_core::Event};
use pmu_model::{Facility, Isa, mmcr0, mmcr2, mmcra, spr};
use std::rc::Rc;

/// Checks the control registers of a group: each event counts what its code requests, in the states
/// that it requests, and causes alerts; and the program has access to its registers.
pub(super) fn check_settings(facility: &Facility, events: &[Rc<Event>]) {
    let [mmcr0, mmcr1, mmcr2, mmcra] =
        [spr::MMCR0, spr::MMCR1, spr::MMCR2, spr::MMCRA].map(|number| facility.mfspr(number));
    let on = |pmc: usize| events.iter().find(|event| event.idx() == pmc + 1);
    let v31 = facility.processor().isa() >= Isa::V31;
    let hypervisor = facility.context.hypervisor;
    let bit = |is_set: bool, field| if is_set { field } else { 0 };
    // Fields for the states in which one counter is frozen, and for those in which all are, with
    // the BHRB.
    let frozen = |event: &Rc<Event>| {
        let kernel = event.excludes_kernel();
        let hv = event.excludes_hv() || kernel && !v31;
        bit(kernel && !hypervisor, mmcr2::FCS)
            | bit(if hypervisor { kernel } else { hv }, mmcr2::FCH)
            | bit(event.excludes_idle(), mmcr2::FCWAIT)
    };
    let common = events.iter().map(frozen).fold(!0, |all, one| all & one);
    let expected = mmcr0::FCECE
        | mmcr0::EBE
        | mmcr0::BHRBA
        | 0b10 << 18
        | bit(v31, mmcr0::PMCCEXT)
        | bit(on(0).is_some(), mmcr0::PMC1CE)
        | bit((1..6).any(|pmc| on(pmc).is_some()), mmcr0::PMCJCE)
        | bit(v31, mmcr0::CC56RUN)
        | bit(!v31 && common & mmcr2::FCS != 0, mmcr0::FCS)
        | bit(!v31 && common & mmcr2::FCH != 0, mmcr0::FCH);
    let fixed = on(4).is_some() || on(5).is_some();
    let expected = expected | bit(!fixed, mmcr0::FC56);
    let found = mmcr0 & !mmcr0::USER;
    assert_eq!(found, expected, "MMCR0 of a group, but for the program's");
    for pmc in 0..6 {
        let Some(event) = on(pmc) else {
            continue;
        };
        let code = event.attr().config;
        let id = event.id;
        assert_eq!(code >> 16 & 0xf, pmc as u64 + 1, "event {id}: its counter");
        if pmc < 4 {
            let select = mmcr1 >> (24 - 8 * pmc) & 0xff;
            assert_eq!(select, code & 0xff, "event {id}: its select in MMCR1");
        }
        let found = mmcr2 << (9 * pmc) & (0x7f << 57) & !mmcr2::FCP0;
        assert_eq!(found, frozen(event), "event {id}: where it is frozen");
    }
    let filter = |event: &Rc<Event>| event.attr().config >> 60 & 0b111;
    let mut filters = events.iter().map(filter).filter(|found| found & 0b100 != 0);
    let recorded = filters.next();
    let records = recorded.is_some();
    let ifm = (mmcra & mmcra::IFM) >> mmcra::IFM.trailing_zeros();
    assert_eq!(ifm, recorded.unwrap_or(0) & 0b11, "MMCRA[IFM]");
    let marks = events.iter().any(|event| is_marked(event));
    let are_marked = mmcra & mmcra::SAMPLE_ENABLE != 0;
    assert_eq!(are_marked, marks, "instructions are marked");
    if v31 {
        assert_eq!(mmcra & mmcra::BHRBRD == 0, records, "MMCRA[BHRBRD]");
    }
}

/// Checks that a program without a group cannot read the registers of the PMU.
pub fn check_closed(facility: &Facility) {
    let counters = spr::PMC1..=spr::PMC6;
    for number in counters.chain([spr::MMCR0, spr::MMCR2, spr::SIAR, spr::SDAR, spr::SIER]) {
        let found = facility.problem_mfspr(user(number));
        assert!(
            found.is_err(),
            "a program without EBBs reads SPR {number}: {found:x?}"
        );
    }
    assert!(facility.problem_mfbhrbe(0).is_err(), "it reads the BHRB");
    assert_eq!(
        facility.mfspr(spr::MMCR0) & mmcr0::EBE,
        0,
        "it may get an EBB"
    );
}

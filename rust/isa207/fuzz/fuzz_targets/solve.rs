// SPDX-License-Identifier: GPL-2.0

//! Fuzz target: any group of up to eight events on any CPU. The solver finds the same answer as a
//! brute force search over all codes and counters, the register images decode to the requested
//! events, and the answer is stable.

#![no_main]

use isa207::{
    Platform,
    Refusal,
    Request,
    Solution,
    COUNTERS, //
};
use isa207_fuzz::{
    decode,
    input::Input,
    model,
    oracle,
    validate,
    PVRS, //
};
use libfuzzer_sys::fuzz_target;

/// Returns counter numbers and codes.
fn placements(answer: &Solution) -> Vec<(usize, u64)> {
    let placements = answer.placements();
    placements
        .map(|(pmc, code)| (pmc.number(), code.0))
        .collect()
}

/// Checks the rules that hold for any answer.
fn is_sound(group: &[Request], answer: &Solution) {
    let placements = placements(answer);
    assert_eq!(placements.len(), group.len());
    let mut taken = [false; COUNTERS];
    for ((pmc, code), req) in placements.into_iter().zip(group) {
        let slot = &mut taken[pmc - 1];
        assert!(!*slot, "PMC{pmc} counts two events");
        *slot = true;
        let named = (code >> 16 & 0xf) as usize;
        assert!(named == 0 && pmc <= 4 || named == pmc, "{code:#x} on {pmc}");
        let hardware = code << 4 >> 4;
        assert!(pmc != 5 || hardware == 0x500fa, "{code:#x} on PMC5");
        assert!(pmc != 6 || hardware == 0x600f4, "{code:#x} on PMC6");
        // Linux's own bits do not change, and an EBB event keeps its requested code.
        assert_eq!(code >> 60, req.code >> 60);
        assert!(req.code >> 63 == 0 || code == req.code);
    }
}

/// Checks that solving the group again gives the same answer, and that so does a group that
/// requests the chosen codes.
fn is_stable(pvr: u32, group: &[Request], platform: Platform, answer: &Solution) {
    assert_eq!(model(pvr).solve(group, platform), Ok(*answer));
    let chosen = group.iter().zip(answer.placements());
    let chosen: Vec<_> = chosen
        .map(|(req, (_, code))| Request {
            code: code.0,
            ..*req
        })
        .collect();
    assert_eq!(model(pvr).solve(&chosen, platform), Ok(*answer));
}

fn judge(pvr: u32, group: &[Request], platform: Platform) {
    let answer = model(pvr).solve(group, platform);
    if group.len() > COUNTERS {
        assert_eq!(answer, Err(Refusal::TooManyEvents));
        return;
    }
    if let Some(why) = group.iter().find_map(|req| validate(pvr, req).err()) {
        assert_eq!(answer, Err(why), "the first wrong event decides");
        return;
    }
    let isa = model(pvr).isa();
    let expected = oracle::solve(isa, group, platform.strict_branch_filters);
    assert_eq!(
        answer.as_ref().ok().map(placements),
        expected,
        "{pvr:#x} {group:x?}: {answer:x?}"
    );
    let Ok(answer) = answer else {
        return;
    };
    is_sound(group, &answer);
    is_stable(pvr, group, platform, &answer);
    let seen = decode::decode(isa, &answer.mmcr);
    let placements: Vec<_> = answer.placements().collect();
    let wanted = decode::expected(isa, group, &placements, platform.hypervisor_mode);
    assert_eq!(seen, wanted, "{pvr:#x} {group:x?}");
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input::new(bytes);
    let first = input.byte();
    let pvr = PVRS[usize::from(first & 0x3f) % PVRS.len()];
    let platform = Platform {
        hypervisor_mode: first & 0x80 != 0,
        strict_branch_filters: first & 0x40 != 0,
        without_bhrb: false,
    };
    let mut group = Vec::new();
    while !input.is_empty() && group.len() < 8 {
        group.push(input.request(model(pvr)));
    }
    judge(pvr, &group, platform);
});

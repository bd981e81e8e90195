// SPDX-License-Identifier: GPL-2.0

//! Fuzz target: arbitrary words as an event, on every CPU. Nothing panics, the fields are where the
//! manuals place them, and validate_event() and solve() refuse the same events for the same
//! reasons: those that the written rules refuse.

#![no_main]

use isa207::{
    CacheEvent,
    ConfigWord,
    CpuModel,
    EventCode,
    GenericEvent,
    Isa,
    Platform,
    Refusal,
    Request, //
};
use isa207_fuzz::{
    input::Input,
    model,
    validate,
    PVRS, //
};
use libfuzzer_sys::fuzz_target;

/// Returns bits `first` to `last`, counted from the least significant.
fn bits(word: u64, first: u32, last: u32) -> u64 {
    word << (63 - last) >> (63 - last + first)
}

/// Checks that each accessor reads its own bits of the code.
fn fields(word: u64) {
    let code = EventCode(word);
    assert_eq!(code.pmcxsel(), bits(word, 0, 7));
    assert_eq!(code.is_marked(), bits(word, 8, 8) == 1);
    assert_eq!(code.unit(), bits(word, 12, 15));
    assert_eq!(code.pmc(), bits(word, 16, 19));
    assert_eq!(code.sample_mode(), bits(word, 24, 28));
    assert_eq!(code.thresh_sel(), bits(word, 29, 31));
    assert_eq!(code.thresh_stop(), bits(word, 32, 35));
    assert_eq!(code.thresh_start(), bits(word, 36, 39));
    assert_eq!(code.ifm(), bits(word, 60, 61));
    assert_eq!(code.wants_bhrb(), bits(word, 62, 62) == 1);
    assert_eq!(code.is_ebb(), bits(word, 63, 63) == 1);
    assert_eq!(code.hardware().0, bits(word, 0, 59));
}

/// Checks perf's own events: those in range exist, and the codes that a CPU has for them are valid.
fn generic(model: &CpuModel, config: u64) {
    let event = GenericEvent::from_config(config);
    assert_eq!(event.is_some(), config < 10);
    let mut codes = [None; 2];
    codes[0] = event.and_then(|event| model.generic_event(event));

    let event = CacheEvent::from_config(config);
    let [cache, op, result] = [0, 8, 16].map(|first| bits(config, first, first + 7));
    let in_range = cache < 7 && op < 3 && result < 2 && config < 1 << 24;
    assert!(in_range || event.is_none());
    codes[1] = event.and_then(|event| model.cache_event(event));

    for code in codes.into_iter().flatten() {
        let req = Request {
            code,
            ..Request::default()
        };
        assert!(
            model.solve(&[req], Platform::default()).is_ok(),
            "{code:#x}"
        );
    }
}

/// Checks that bits without a file in `format/` are refused.
fn formats(model: &CpuModel, req: &Request, verdict: Result<(), Refusal>) {
    let owned = |word| {
        let fields = model.formats().filter(|format| format.word == word);
        // "event" covers the whole code.
        let fields = fields.filter(|format| format.name != "event");
        fields.fold(0, |all, format| all | format.field.mask())
    };
    if req.code & !owned(ConfigWord::Config) != 0 {
        assert_eq!(verdict, Err(Refusal::ReservedBits));
    } else if req.config1 & !owned(ConfigWord::Config1) != 0 {
        assert_eq!(verdict, Err(Refusal::Config1));
    } else if req.config2 != 0 {
        assert_eq!(verdict, Err(Refusal::Config2));
    }
}

/// Checks that solve() returns the same as validate_event(), except for the rule about whole
/// groups.
fn alone(model: &CpuModel, req: &Request, verdict: Result<(), Refusal>) {
    let answer = model.solve(&[*req], Platform::default());
    let unit = bits(req.code, 12, 15);
    let pmc = bits(req.code, 16, 19);
    let expected = match verdict {
        Err(why) => Err(why),
        Ok(()) if model.isa() == Isa::V300 && (6..=9).contains(&unit) && pmc != 4 => {
            Err(Refusal::BusNeedsPmc4)
        }
        // An event that is alone gets the counter that it names, or PMC1.
        Ok(()) => Ok(vec![(pmc.max(1) as usize, req.code)]),
    };
    let found = answer.map(|answer| {
        let placements = answer.placements();
        placements
            .map(|(pmc, code)| (pmc.number(), code.0))
            .collect()
    });
    assert_eq!(found, expected, "{} {req:x?}", model.name());
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input::new(bytes);
    let known = CpuModel::from_pvr(input.word() as u32).map(CpuModel::name);
    assert!(known
        .is_none_or(|name| ["POWER8", "POWER9", "POWER10", "Power11", "Power12"].contains(&name)));

    let config = input.word();
    let rest = input;
    for pvr in PVRS {
        let model = model(pvr);
        generic(model, config);
        let req = rest.clone().request(model);
        fields(req.code);
        let verdict = validate(pvr, &req);
        formats(model, &req, verdict);
        alone(model, &req, verdict);
    }
});

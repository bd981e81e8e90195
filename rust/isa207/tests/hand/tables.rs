// SPDX-License-Identifier: GPL-2.0

//! Rules for the tables of every CPU.

use isa207::{
    CacheEvent,
    ConfigWord,
    GenericEvent,
    Isa,
    SampleRegisters,
    Weight, //
};

use super::*;

/// Each CPU and revision that has tables of its own.
const PVRS: [u32; 11] = [
    0x004b_0201, // POWER8E
    0x004c_0100, // POWER8NVL
    POWER8,
    0x004e_1201,
    0x004e_1202,
    POWER9,
    0x004e_2202, // Cumulus
    0x0080_1100,
    POWER10,
    POWER11,
    POWER12,
];

#[test]
fn cpus_by_pvr() {
    let found = PVRS.map(|pvr| (model(pvr).name(), model(pvr).isa()));
    let [p8, p9] = [("POWER8", Isa::V207), ("POWER9", Isa::V300)];
    let [p10, p11, p12] = ["POWER10", "Power11", "Power12"].map(|name| (name, Isa::V31));
    assert_eq!(found, [p8, p8, p8, p9, p9, p9, p9, p10, p10, p11, p12]);
    let without_siarv = PVRS.iter().filter(|pvr| !model(**pvr).has_siar_valid());
    assert!(without_siarv.eq(&[0x0080_1100]));
    // POWER7+, a PA6T, POWER9 in compatibility mode.
    for unknown in [0x004a_0201, 0x0090_0102, 0x0f00_0005, 0] {
        assert!(CpuModel::from_pvr(unknown).is_none(), "{unknown:#x}");
    }
    assert!(Isa::V207 < Isa::V300 && Isa::V300 < Isa::V31);
}

#[test]
fn every_event_of_the_tables_counts() {
    for model in PVRS.map(model) {
        let named = model.named_events().map(|e| e.code);
        let generic = (0..16).filter_map(GenericEvent::from_config);
        let generic = generic.filter_map(|e| model.generic_event(e));
        let cache = (0..1 << 18).filter_map(CacheEvent::from_config);
        let cache = cache.filter_map(|e| model.cache_event(e));
        let codes: Vec<_> = named.chain(generic).chain(cache).collect();
        assert!(codes.len() > 35, "{}", codes.len());
        for code in codes {
            let answer = model.solve(&[request(code)], Platform::default());
            assert!(answer.is_ok(), "{} {code:#x}: {answer:?}", model.name());
        }
    }
}

#[test]
fn generic_events() {
    let all = |pvr: u32| {
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map(|config| {
            let event = GenericEvent::from_config(config).unwrap();
            model(pvr).generic_event(event).unwrap_or(0)
        })
    };
    let p8 = [
        0x1e, 2, 0x100ee, 0x3e054, 0x10068, 0x400f6, 0, 0x100f8, 0x4000a, 0,
    ];
    let p9 = [
        0x1e, 2, 0x100fc, 0x2c04e, 0x4d05e, 0x400f6, 0, 0x100f8, 0x1e054, 0,
    ];
    let p10 = [
        0x600f4, 0x500fa, 0x100fc, 0x400f0, 0x2f04a, 0x3e098, 0, 0, 0, 0,
    ];
    let p10_dd1 = [
        0x600f4, 0x500fa, 0x100fc, 0x3e054, 0x4d05e, 0x400f6, 0, 0, 0, 0,
    ];
    assert_eq!(all(POWER8), p8);
    assert_eq!(all(0x004e_1202), p9);
    assert_eq!(all(POWER10), p10);
    assert_eq!(all(POWER11), p10);
    assert_eq!(all(0x0080_1100), p10_dd1);
    let p12 = [
        0x600f4, 0x500fa, 0x100fc, 0x400f0, 0x10068, 0x27098, 0, 0, 0, 0,
    ];
    assert_eq!(all(POWER12), p12);
    assert_eq!(GenericEvent::from_config(10), None);
    assert_eq!(GenericEvent::from_config(1 << 32), None);
}

#[test]
fn cache_events() {
    let code = |pvr: u32, config| model(pvr).cache_event(CacheEvent::from_config(config)?);
    // L1D read miss, LL write access, LL prefetch access, L1I write access.
    let some = |pvr| [0x1_0000, 0x102, 0x202, 0x101].map(|config| code(pvr, config));
    let p8 = [Some(0x3e054), Some(0x17080), Some(0x4e052), Some(0x408c)];
    let p9 = [Some(0x2c04e), None, Some(0x4e052), Some(0x408c)];
    let l1i = Some(0x3f_0000_0001_c040);
    let p10 = [
        Some(0x3e054),
        Some(0x100_0004_6080),
        Some(0x1000_0001_6080),
        l1i,
    ];
    let p10_dd1 = [Some(0x3e054), None, None, l1i];
    assert_eq!(some(POWER8), p8);
    assert_eq!(some(0x004e_1202), p9);
    assert_eq!(some(POWER10), p10);
    assert_eq!(some(0x0080_1100), p10_dd1);
    assert_eq!(some(POWER12), p10);
    // LL read access.
    assert_eq!(code(POWER11, 2), Some(0x13_4000_0001_c040));
    assert_eq!(code(POWER12, 2), Some(0x103_4000_0003_c040));

    // Number of combinations, and number of those that a machine can have.
    let configs =
        || (0..7).flat_map(|c| (0..3).flat_map(move |o| [0, 1].map(|r| c | o << 8 | r << 16)));
    let sensible = configs().filter_map(CacheEvent::from_config).count();
    assert_eq!((configs().count(), sensible), (42, 6 + 5 + 6 + 2 + 2 + 2));
    // Out of range: cache, access, outcome, and bits above them.
    for config in [7, 0x300, 0x2_0000, 0x100_0000, 1 << 40] {
        assert_eq!(CacheEvent::from_config(config), None, "{config:#x}");
    }
}

#[test]
fn named_events() {
    let code = |pvr: u32, name| {
        let mut events = model(pvr).named_events().filter(|event| event.name == name);
        let code = events.next()?.code;
        assert!(events.next().is_none(), "{name} is two");
        Some(code)
    };
    let some = |pvr| {
        let names = ["branch-loads", "LLC-stores", "LLC-prefetches", "mem-loads"];
        names.map(|name| code(pvr, name).unwrap_or(0))
    };
    assert_eq!(some(POWER8), [0x10068, 0x17080, 0x4e052, 0]);
    assert_eq!(some(POWER9), [0x4d05e, 0, 0x4e052, 0x34_3404_01e0]);
    let p10 = [0x4d05e, 0x100_0004_6080, 0x1000_0001_6080, 0x35_3404_01e0];
    assert_eq!(some(POWER10), p10);
    assert_eq!(some(POWER11), p10);
    assert_eq!(some(0x0080_1100), [0x4d05e, 0, 0, 0x35_3404_01e0]);
    assert_eq!(code(POWER8, "mem_access"), Some(0x104_01e0));
    // The in-tree driver has all generic and cache events except lines written into the instruction
    // cache.
    let count = |pvr| model(pvr).named_events().count();
    let counts = [POWER8, POWER9, 0x0080_1100, POWER10, POWER11, POWER12].map(count);
    assert_eq!(counts, [25, 24, 21, 24, 24, 24]);
}

#[test]
fn architected_events() {
    assert!(CpuModel::architected(Isa::V207).is_none());
    // MMCR0 also has PMCCEXT from v3.1 on.
    for (isa, pmccext) in [(Isa::V300, 0), (Isa::V31, 0x200)] {
        let model = CpuModel::architected(isa).unwrap();
        assert_eq!((model.name(), model.isa()), ("ISAv3", isa));
        let solve = |codes: &[u64]| {
            let requests: Vec<_> = codes.iter().map(|&code| request(code)).collect();
            model.solve(&requests, Platform::default())
        };
        let events: Vec<_> = model.named_events().collect();
        assert_eq!(events.len(), 12);
        for event in events {
            assert!(solve(&[event.code]).is_ok(), "{}", event.name);
        }
        // Cycles and instructions: PMCjCE, CC56RUN.
        let mmcr = solve(&[0x600f4, 0x500fa]).unwrap().mmcr;
        assert_eq!((mmcr.mmcr0, mmcr.mmcr1), (0x4100 | pmccext, 0));
        // Cycles twice: the second event gets the alternative code on PMC1.
        let mmcr = solve(&[0x600f4, 0x600f4]).unwrap().mmcr;
        assert_eq!((mmcr.mmcr0, mmcr.mmcr1), (0xc100 | pmccext, 0xf0 << 24));
        // A third event has no counter left: the code for run cycles elsewhere is not architected.
        let mut thrice = [0x600f4; 3].map(request);
        thrice.iter_mut().for_each(|req| req.only_count_run = true);
        assert!(model.solve(&thrice, Platform::default()).is_err());
        // Event-based branches, also with the BHRB.
        for ebb in [1 << 63, 3 << 62, 0xd << 60] {
            assert!(solve(&[ebb | 0x100f0]).is_ok());
        }
        // Fields that only implementations have: mark, unit, cache select, sample mode, threshold.
        for bits in [1 << 8, 1 << 12, 1 << 20, 1 << 24, 1 << 29, 1 << 36, 1 << 50] {
            let refused = solve(&[0x100f0 | bits]).map(|_| ());
            assert_eq!(refused, Err(Refusal::ReservedBits), "{bits:#x}");
        }
        let formats: Vec<_> = model.formats().map(|format| format.name).collect();
        assert_eq!(formats, ["event", "pmcxsel", "pmc", "ifm", "bhrb", "ebb"]);
        // SIER and MMCRA have no known meaning for a load.
        let load = SampleRegisters {
            sier: 1 << 15,
            mmcra: u64::MAX,
            ..SampleRegisters::default()
        };
        assert!(self::model(POWER10).memory_access(&load).is_some());
        assert_eq!(model.memory_access(&load), None);
        assert_eq!(model.weight(&load), Weight::default());
    }
}

#[test]
fn format_fields_cover_what_codes_may_have() {
    for model in PVRS.map(model) {
        let mut covered = [0u64; 2];
        for format in model.formats() {
            let word = &mut covered[usize::from(format.word == ConfigWord::Config1)];
            let (first, last) = (format.field.first_bit(), format.field.last_bit());
            assert_eq!(
                format.field.mask(),
                u64::MAX >> (63 - last) & u64::MAX << first
            );
            assert!(first <= last && last < 64);
            // "event" is the whole code; the other fields do not overlap.
            if format.name != "event" {
                assert_eq!(*word & format.field.mask(), 0, "{}", format.name);
                *word |= format.field.mask();
            }
        }
        let (last, config, config1) = match model.isa() {
            Isa::V207 => (49, !0x0ffc_0000_0000_0600, 0),
            Isa::V300 => (51, !0x0ff0_0000_0000_0200, 0),
            Isa::V31 => (59, !0, 0x3_ffff),
        };
        assert_eq!(covered, [config, config1], "{}", model.name());
        let event = model.formats().find(|format| format.name == "event");
        assert_eq!(event.unwrap().field.mask(), u64::MAX >> (63 - last));
    }
    assert_eq!(ConfigWord::Config.name(), "config");
    assert_eq!(ConfigWord::Config1.name(), "config1");
}

/// Needs the JSON event lists of the kernel's perf tool: the path of
/// `tools/perf/pmu-events/arch/powerpc` in `PMU_EVENTS`.
#[test]
#[ignore = "needs PMU_EVENTS"]
fn every_published_event_passes() {
    let root = std::env::var("PMU_EVENTS").expect("PMU_EVENTS is set");
    let lists = [
        (POWER8, "power8", 900),
        (POWER9, "power9", 800),
        (POWER10, "power10", 600),
    ];
    for (pvr, folder, least) in lists {
        let mut codes = Vec::new();
        for file in std::fs::read_dir(format!("{root}/{folder}")).unwrap() {
            let path = file.unwrap().path();
            // Skip the events of other PMUs.
            if path.ends_with("nest_metrics.json") {
                continue;
            }
            for line in std::fs::read_to_string(path).unwrap().lines() {
                let Some((_, rest)) = line.split_once("\"EventCode\"") else {
                    continue;
                };
                let hex = rest.split('"').nth(1).unwrap().to_lowercase();
                let hex = hex.strip_prefix("0x").unwrap();
                codes.push(u64::from_str_radix(hex, 16).unwrap());
            }
        }
        assert!(codes.len() > least, "{folder}: {}", codes.len());
        for code in codes {
            let verdict = validate(pvr, code);
            assert_eq!(verdict, Ok(()), "{folder} {code:#x}");
        }
    }
}

// SPDX-License-Identifier: GPL-2.0
//! All intended differences between the module and the kernel's built-in driver: requests that one
//! of them refuses and the other one accepts, each with the reason.
//!
//! A comparison of the drivers uses this table only. A request without a rule here must have the
//! same outcome under both. The rules are derived from the fields in sysfs `format/`, not from the
//! driver.

use std::fs;
use std::io;

use perf_event::sys::PERF_TYPE_HW_CACHE;
use perf_event::sys::PERF_TYPE_RAW;

use crate::machine::Model;

/// The request of one open.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asked {
    /// `attr.type`
    pub kind: u32,
    /// `attr.config`
    pub config: u64,
    /// `attr.config1`
    pub config1: u64,
    /// `attr.config2`
    pub config2: u64,
    /// `attr.config3`
    pub config3: u64,
    /// `attr.precise_ip`
    pub precise_ip: u64,
}

impl Asked {
    /// Creates a request of any type that sets `config` only.
    pub fn new(kind: u32, config: u64) -> Asked {
        Asked {
            kind,
            config,
            ..Asked::default()
        }
    }

    /// Creates a request of PERF_TYPE_RAW.
    pub fn raw(config: u64) -> Asked {
        Asked::new(PERF_TYPE_RAW, config)
    }

    /// Returns bits `first` to `last` of the event code.
    fn bits(&self, first: u32, last: u32) -> u64 {
        bits(self.config, first, last)
    }

    fn unit(&self) -> u64 {
        self.bits(12, 15)
    }

    fn is_marked(&self) -> bool {
        self.bits(8, 8) != 0
    }
}

/// Returns bits `first` to `last` of `word`, counted from the least significant bit.
pub fn bits(word: u64, first: u32, last: u32) -> u64 {
    word << (63 - last) >> (63 - last + first)
}

/// The processor, as far as the rules distinguish processors.
#[derive(Debug, Clone, Copy)]
pub struct Processor {
    /// The processor family, which determines the event codes.
    pub model: Model,
    /// Whether this is a POWER9 of the revision that counts some events wrongly.
    pub is_power9_dd22: bool,
}

impl Processor {
    /// Returns the processor that runs this program.
    pub fn current() -> io::Result<Processor> {
        let model = crate::machine::model()?;
        let text = fs::read_to_string("/proc/cpuinfo")?;
        let is_dd22 = text.contains("revision\t: 2.2");
        Ok(Processor {
            model,
            is_power9_dd22: model == Model::Power9 && is_dd22,
        })
    }
}

/// An intended difference.
pub struct Rule {
    /// A short name, used in tables.
    pub name: &'static str,
    /// The reason why the module refuses or accepts the request.
    pub reason: &'static str,
    /// The errno of the module's refusal, or 0 if the module accepts the request.
    pub errno: i32,
    applies: fn(Processor, &Asked) -> bool,
}

/// Creates a rule for requests that the module refuses with EINVAL.
const fn refuses(
    name: &'static str,
    reason: &'static str,
    applies: fn(Processor, &Asked) -> bool,
) -> Rule {
    Rule {
        name,
        reason,
        errno: libc::EINVAL,
        applies,
    }
}

/// Returns the rule that makes the module refuse `asked`, if there is one.
pub fn rule_for(processor: Processor, asked: &Asked) -> Option<&'static Rule> {
    RULES.iter().find(|rule| (rule.applies)(processor, asked))
}

/// Returns the rule by which the module decides on a group differently, if there is one. None of
/// perf's generic events is an event of the bus.
pub fn rule_for_group(processor: Processor, group: &[Asked]) -> Option<&'static Rule> {
    let has_more_codes =
        |asked: &Asked| is_code(asked) && MORE_ALTERNATIVES.contains(&asked.config);
    if processor.model == Model::Power10 && group.iter().any(has_more_codes) {
        return Some(&MORE_CODES_OF_CYCLES);
    }
    let is_on_bus = |asked: &&Asked| is_code(asked) && (6..=9).contains(&asked.unit());
    let is_on_pmc4 = |asked: &Asked| asked.bits(16, 19) == 4;
    let mut on_bus = group.iter().filter(is_on_bus).peekable();
    if processor.model != Model::Power9 || on_bus.peek().is_none() {
        return None;
    }
    if on_bus.any(is_on_pmc4) {
        Some(&BUS_BESIDE_ALTERNATIVE)
    } else {
        Some(&BUS_NEEDS_PMC4)
    }
}

// The built-in driver checks PMC4 only while all events use the codes that were requested. If one
// of them has to use an alternative, it requires instead that either all events of the bus are on
// PMC4, which is impossible, or none.
const BUS_NEEDS_PMC4: Rule = refuses(
    "bus-needs-pmc4",
    "units 6 to 9 reach the counters only if PMC4 counts one of their events",
    |_, _| false,
);
const BUS_BESIDE_ALTERNATIVE: Rule = Rule {
    name: "bus-beside-alternative",
    reason: "an alternative for another event is no reason to refuse one of units 6 to 9",
    errno: 0,
    applies: |_, _| false,
};

/// POWER10's codes for cycles and instructions, with and without the run latch, that the built-in
/// driver only counts on the counter in the code.
const MORE_ALTERNATIVES: [u64; 4] = [0x100f0, 0x100fe, 0x200f4, 0x400fa];
const MORE_CODES_OF_CYCLES: Rule = Rule {
    name: "more-codes-of-cycles",
    reason: "cycles and instructions count on PMC6 and PMC5 as well as on PMC1",
    errno: 0,
    applies: |_, _| false,
};

/// Some of the codes that count wrongly on POWER9 Nimbus DD2.2.
pub const WRONG_ON_DD22: [u64; 3] = [0x1c058, 0x3d152, 0x4003c];

/// All rules.
pub const RULES: &[Rule] = &[
    BUS_NEEDS_PMC4,
    BUS_BESIDE_ALTERNATIVE,
    MORE_CODES_OF_CYCLES,
    refuses(
        "cache-config-beyond",
        "bits above 23 are no part of a cache event's number",
        |_, asked| asked.kind == PERF_TYPE_HW_CACHE && asked.bits(24, 31) != 0,
    ),
    refuses(
        "config1-unused",
        "nothing reads these bits of config1",
        |cpu, asked| match cpu.model {
            Model::Power8 | Model::Power9 => asked.config1 != 0,
            Model::Power10 => bits(asked.config1, 18, 63) != 0,
        },
    ),
    refuses(
        "config2-unused",
        "nothing reads config2 and config3",
        |_, asked| asked.config2 | asked.config3 != 0,
    ),
    refuses(
        "wrong-count-in-ebb",
        "an event that counts wrongly does so as an EBB event, too",
        |cpu, asked| {
            cpu.is_power9_dd22
                && asked.bits(63, 63) != 0
                && WRONG_ON_DD22.contains(&asked.bits(0, 59))
        },
    ),
    refuses(
        "filter-without-bhrb",
        "a BHRB filter without the bit that requests the BHRB",
        |_, asked| is_code(asked) && asked.bits(60, 61) != 0 && asked.bits(62, 62) == 0,
    ),
    refuses(
        "sample-mode-without-mark",
        "how to choose marked instructions, for an event that counts all",
        |_, asked| is_code(asked) && asked.bits(24, 28) != 0 && !asked.is_marked(),
    ),
    refuses(
        "sdar-mode-on-marked",
        "marked events never update SDAR in the way the mode says",
        |cpu, asked| {
            let mode = match cpu.model {
                Model::Power8 => 0,
                Model::Power9 => asked.bits(50, 51),
                Model::Power10 => asked.bits(22, 23),
            };
            // Mode 2 is the default.
            is_code(asked) && mode % 2 == 1 && asked.is_marked()
        },
    ),
    refuses(
        "threshold-without-select",
        "a threshold for nothing; it would get into the whole group's MMCRA",
        |cpu, asked| {
            let value = match cpu.model {
                Model::Power8 | Model::Power9 => asked.bits(32, 49),
                Model::Power10 => asked.bits(32, 39) | asked.config1,
            };
            is_code(asked) && asked.bits(29, 31) == 0 && value != 0 && !is_fabric(cpu, asked)
        },
    ),
    refuses(
        "threshold-on-fabric-match",
        "the bits of the threshold hold the value to match",
        |cpu, asked| is_fabric(cpu, asked) && (asked.bits(29, 31) != 0 || asked.bits(40, 49) != 0),
    ),
    refuses(
        "cache-select-outside",
        "a cache select that this unit does not have",
        |cpu, asked| {
            let select = match cpu.model {
                Model::Power8 | Model::Power9 => asked.bits(20, 23),
                Model::Power10 => asked.bits(20, 21),
            };
            let has = match (cpu.model, asked.unit()) {
                (Model::Power8, 6 | 7) => select == 0,
                // Bits 20 to 22 select the bank of the L3.
                (Model::Power8, 8 | 9) => select & 7 == 0,
                (Model::Power8, _) => select == 0 || (4..8).contains(&select),
                (Model::Power9, 8 | 9) => select & 7 == 0,
                (_, 6..=9) => select == 0,
                (_, _) => select < 4,
            };
            is_code(asked) && !has
        },
    ),
    refuses(
        "l2l3-select-outside",
        "the select of the L2 and L3 unit, for an event of another one",
        |cpu, asked| {
            is_code(asked)
                && cpu.model == Model::Power10
                && asked.bits(40, 44) != 0
                && asked.unit() != 6
        },
    ),
];

fn is_code(asked: &Asked) -> bool {
    asked.kind == PERF_TYPE_RAW
}

/// Returns whether this is POWER8's PM_MRK_FAB_RSP_MATCH or PM_MRK_FAB_RSP_MATCH_CYC, level or
/// edge.
fn is_fabric(cpu: Processor, asked: &Asked) -> bool {
    let event = asked.bits(0, 19) & !1;
    let event = event & 0xff0ff;
    cpu.model == Model::Power8 && is_code(asked) && matches!(event, 0x30056 | 0x4f052)
}

// SPDX-License-Identifier: GPL-2.0

//! Random events and groups, biased towards those that can almost be counted together: each field
//! has few values, so that events often agree, and codes come from the published lists, so that
//! alternatives occur.

use isa207::{
    Exclude,
    Isa,
    Request, //
};
use proptest::{
    prelude::*,
    sample::select, //
};

/// Returns codes that can be counted in more than one way, some only for a task.
fn flexible_codes(isa: Isa) -> Vec<u64> {
    let mut codes = vec![0x1e, 0x2, 0x500fa, 0x600f4];
    codes.extend(match isa {
        Isa::V207 => vec![
            0x200f4, 0x400fa, 0x20036, 0x40036, 0x200f2, 0x300f2, 0x3e054, 0x400f0, 0x10134,
            0x301e2, 0x10138, 0x40138, 0x18082, 0x3e05e, 0x1d14e, 0x401e8, 0x1e054, 0x4000a,
            0x2013c, 0x3012e,
        ],
        Isa::V300 => vec![
            0x200f4, 0x400fa, 0x20036, 0x40036, 0x200f2, 0x300f2, 0x3e054, 0x400f0,
        ],
        Isa::V31 => vec![0x100f0, 0x100fe, 0x200f4, 0x400fa],
    });
    codes
}

/// Returns some codes of each kind from the published lists.
fn plain_codes(isa: Isa) -> Vec<u64> {
    let mut codes = vec![0x1001e, 0x2001e, 0x3001e, 0x4001e, 0x20002, 0x40002];
    codes.extend(match isa {
        Isa::V207 => vec![
            0x520050,
            0x610050,
            0x64c048,
            0x63c048,
            0x53404c,
            0x819082,
            0x83908b,
            0x2003_01ea,
            0x2001_01e8,
            0x104_01e0,
            0x17080,
            0x17082,
            0xd8b8,
            0x4080,
            0x20_0003_0156,
            0x21_0004_f152,
        ],
        Isa::V300 => vec![
            0x26080,
            0x46080,
            0x36880,
            0x16080,
            0x46880,
            0x1100fc,
            0x23e054,
            0x13e054,
            0x21c040,
            0x22c040,
            0x34_3404_01e0,
            0x34_3c04_01e0,
            0x35_3404_01e0,
            0x35_3401_01ec,
            0x1_3e35_3404_01e0,
            0x4080,
            0x488c,
        ],
        Isa::V31 => vec![
            0x100f8,
            0x200fc,
            0x300fe,
            0x400fc,
            0x1002c,
            0x4080,
            0x40a0,
            0x26880,
            0x16080,
            0x100_0004_6080,
            0x100_0002_6880,
            0x1000_0001_6080,
            0x13_4000_0001_c040,
            0x3f_0000_0001_c040,
            0x3_4000_0020_c040,
            0x3_0000_0010_c040,
            0x14242,
            0x24242,
            0x35_3404_01e0,
            0x35_3c04_01e0,
            0x35_3401_01ec,
            0x35_5401_01ec,
        ],
    });
    codes
}

/// Returns a code that consists of random fields, most of them 0 or one of two values.
fn made_up_code(isa: Isa) -> impl Strategy<Value = u64> {
    let event = select(vec![0x1e, 0x50, 0x52, 0x56, 0x80, 0xf4, 0xfa]);
    let unit = select(vec![0u64, 0, 4, 6, 6, 7, 8, 9, 0xc, 0xf]);
    let pmc = select(vec![0u64, 0, 0, 1, 2, 3, 4, 4, 5, 6, 7]);
    let cache_sel = match isa {
        Isa::V207 => vec![0u64, 0, 0, 0, 4, 5, 6, 8, 1],
        Isa::V300 => vec![0, 0, 0, 0, 1, 2, 4],
        Isa::V31 => vec![0, 0, 0, 0, 1, 2],
    };
    let mark = prop_oneof![
        6 => Just(0),
        3 => Just(0x100u64),
        2 => Just(0x100_0100),
        1 => Just(0x400_0100),
        1 => (0u64..32).prop_map(|sample| sample << 24 | 0x100),
    ];
    let threshold = prop_oneof![
        6 => Just(0),
        2 => Just(0x12_2000_0000u64),
        1 => Just(0x12_4000_0000),
        1 => (0u64..0x800).prop_map(|bits| bits << 29),
    ];
    // Combine, and on POWER10 radix scope.
    let few = select(vec![0u64, 0, 0, 0, 0x800, 0x400, 0x200]);
    let upper = match isa {
        // Threshold compare; SDAR mode.
        Isa::V207 => vec![0u64, 0, 0, 0, 0x20 << 40, 0xa0 << 40],
        Isa::V300 => vec![0, 0, 0, 0, 0x20 << 40, 0xa0 << 40, 1 << 50, 2 << 50],
        // L2/L3 select; source; SDAR mode.
        Isa::V31 => vec![0, 0, 0, 0, 1 << 40, 3 << 40, 0x7abc << 45, 1 << 22, 2 << 22],
    };
    let lower = (event, unit, pmc, select(cache_sel));
    (lower, mark, threshold, few, select(upper)).prop_map(
        |((event, unit, pmc, cache_sel), mark, threshold, few, upper)| {
            event | unit << 12 | pmc << 16 | cache_sel << 20 | mark | threshold | few | upper
        },
    )
}

/// Returns one event; most are valid.
fn event(isa: Isa) -> impl Strategy<Value = Request> {
    let code = prop_oneof![
        12 => select(flexible_codes(isa)),
        8 => select(plain_codes(isa)),
        2 => made_up_code(isa),
    ];
    with_attributes(code)
}

/// Returns one event, valid or invalid with equal probability.
pub fn doubtful_event(isa: Isa) -> impl Strategy<Value = Request> {
    let known = || select([flexible_codes(isa), plain_codes(isa)].concat());
    let flipped = (known(), 0u32..64);
    let code = prop_oneof![
        3 => made_up_code(isa),
        1 => flipped.prop_map(|(code, bit)| code ^ 1 << bit),
        1 => (known(), 0u64..16).prop_map(|(code, linux)| code | linux << 60),
    ];
    with_attributes(code)
}

fn with_attributes(code: impl Strategy<Value = u64>) -> impl Strategy<Value = Request> {
    let config1 = prop_oneof![
        30 => Just(0u64),
        1 => select(vec![1, 255, 256, 1000, 1001, 2000, 0x3_fbff, 0x3_fc01, 0x4_0000, 1 << 63]),
    ];
    let config2 = prop_oneof![60 => Just(0u64), 1 => Just(1)];
    let exclude = any::<[bool; 4]>();
    let filter = prop_oneof![
        10 => Just(None),
        4 => Just(Some(0)),
        1 => (0u8..5).prop_map(Some),
    ];
    (code, config1, config2, exclude, any::<bool>(), filter).prop_map(
        |(code, config1, config2, [user, kernel, hv, idle], task, branch_filter_ifm)| Request {
            code,
            // A value to compare with usually comes with a threshold.
            config1: if code >> 29 & 7 == 0 && config1 != 1 {
                0
            } else {
                config1
            },
            config2,
            exclude: Exclude {
                user,
                kernel,
                hv,
                idle,
            },
            only_count_run: task,
            branch_filter_ifm,
        },
    )
}

/// Linux's own bits for all events of a group.
#[derive(Clone, Copy, Debug)]
enum Ebb {
    None,
    /// Each event has these bits (60 to 63).
    All(u64),
    /// Each event has these bits and keeps its branch stack.
    AllWithStacks(u64),
    /// Only the first event has EBB set.
    First,
}

/// Returns up to seven events.
pub fn group(isa: Isa) -> impl Strategy<Value = Vec<Request>> {
    let ebb = prop_oneof![
        20 => Just(Ebb::None),
        2 => Just(Ebb::All(0x8)),
        1 => Just(Ebb::All(0xd)),
        1 => select(vec![0x8, 0xc, 0xd]).prop_map(Ebb::AllWithStacks),
        1 => Just(Ebb::First),
    ];
    let events = prop::collection::vec(event(isa), 0..=7);
    (events, ebb).prop_map(|(mut events, ebb)| {
        for (n, req) in events.iter_mut().enumerate() {
            match ebb {
                Ebb::All(bits) => {
                    req.code |= bits << 60;
                    req.branch_filter_ifm = None;
                }
                Ebb::AllWithStacks(bits) => req.code |= bits << 60,
                Ebb::First if n == 0 => req.code |= 1 << 63,
                _ => {}
            }
        }
        events
    })
}

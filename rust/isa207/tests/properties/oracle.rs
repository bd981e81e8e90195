// SPDX-License-Identifier: GPL-2.0

//! A second implementation of the PMU's rules, written for readability instead of speed:
//! constraints are lists of names and values, and counters are tried one by one.

use std::collections::BTreeSet;

use isa207::{
    Isa::{
        self,
        *, //
    },
    Request, //
};

/// Returns bits `first` to `last`, counted from the least significant.
fn bits(word: u64, first: u32, last: u32) -> u64 {
    (word >> first) & ((1 << (last - first + 1)) - 1)
}

/// Returns the code without EBB, BHRB and IFM.
fn hardware(code: u64) -> u64 {
    code & 0x0fff_ffff_ffff_ffff
}

fn is_fab_match(isa: Isa, code: u64) -> bool {
    isa == V207 && [0x30056, 0x4f052].contains(&(code & 0xff0fe))
}

/// Returns whether the request is an event that the CPU has.
pub fn is_valid(isa: Isa, req: &Request) -> bool {
    let code = req.code;
    let unit = bits(code, 12, 15);
    let pmc = bits(code, 16, 19);
    let marked = bits(code, 8, 8) == 1;
    let sample = bits(code, 24, 28);
    let select = bits(code, 29, 31);
    let (stop, start) = (bits(code, 32, 35), bits(code, 36, 39));
    let l2l3 = [6, 7, 8, 9].contains(&unit);

    let reserved = match isa {
        V207 => bits(code, 9, 10) | bits(code, 50, 59),
        V300 => bits(code, 9, 9) | bits(code, 52, 59),
        V31 => 0,
    };
    let config1_limit = if isa == V31 { 1 << 18 } else { 1 };
    if reserved != 0 || req.config1 >= config1_limit || req.config2 != 0 {
        return false;
    }

    // Counters.
    match pmc {
        0..=4 => {}
        5 if hardware(code) == 0x500fa => {}
        6 if hardware(code) == 0x600f4 => {}
        _ => return false,
    }

    // Linux's own bits: EBB (63), BHRB (62), IFM (60-61).
    let (ebb, bhrb, ifm) = (code >> 63 == 1, bits(code, 62, 62) == 1, bits(code, 60, 61));
    if (ebb && pmc == 0) || (bhrb && !ebb) || (ifm != 0 && !bhrb) {
        return false;
    }
    let stack = req.branch_filter_ifm.map(u64::from);
    if stack.is_some_and(|filter| filter > 3 || (bhrb && filter != ifm)) {
        return false;
    }

    // Sampling.
    let reserved_here = match isa {
        V207 => false,
        V300 => sample == 0xc,
        V31 => sample == 0x10,
    };
    let reserved_modes = [0x5, 0x9, 0xd, 0x19, 0x1d, 0x1a, 0x1e];
    let reserved_everywhere = sample % 4 == 3 || reserved_modes.contains(&sample);
    if reserved_here || (isa != V207 && reserved_everywhere) {
        return false;
    }
    let sdar_mode = match isa {
        V207 => 0,
        V300 => bits(code, 50, 51),
        V31 => bits(code, 22, 23),
    };
    if (sample != 0 && !marked) || (sdar_mode % 2 == 1 && marked) {
        return false;
    }

    // Thresholds.
    let compare = if isa == V31 { 0 } else { bits(code, 40, 49) };
    if is_fab_match(isa, code) {
        if select != 0 || compare != 0 {
            return false;
        }
    } else {
        if isa != V207 && (start == 15 || stop == 15) {
            return false;
        }
        if select == 0 && start + stop + compare + req.config1 != 0 {
            return false;
        }
        // The exponent is above 0, and the mantissa's two upper bits are 0.
        if compare >= 0x80 && compare % 0x80 < 0x20 {
            return false;
        }
    }

    // Cache selects.
    match isa {
        V207 => {
            let allowed: &[u64] = match unit {
                6 | 7 => &[0],
                8 | 9 => &[0, 8],
                _ => &[0, 4, 5, 6, 7],
            };
            allowed.contains(&bits(code, 20, 23))
        }
        V300 => {
            let allowed: &[u64] = match unit {
                6 | 7 => &[0],
                8 | 9 => &[0, 8],
                _ => &[0, 1, 2, 3],
            };
            allowed.contains(&bits(code, 20, 23))
        }
        V31 => {
            let allowed = if l2l3 { 0 } else { 3 };
            let group = bits(code, 40, 44);
            bits(code, 20, 21) <= allowed && (group == 0 || unit == 6)
        }
    }
}

/// Returns the codes that count the same, in the order of preference.
fn codes(isa: Isa, req: &Request) -> Vec<u64> {
    let rows: &[&[u64]] = match isa {
        V207 => &[
            &[0x10134, 0x301e2],
            &[0x10138, 0x40138],
            &[0x18082, 0x3e05e],
            &[0x1d14e, 0x401e8],
            &[0x1e054, 0x4000a],
            &[0x20036, 0x40036],
            &[0x200f2, 0x300f2],
            &[0x200f4, 0x600f4],
            &[0x2013c, 0x3012e],
            &[0x3e054, 0x400f0],
            &[0x400fa, 0x500fa],
        ],
        V300 => &[
            &[0x20036, 0x40036],
            &[0x200f2, 0x300f2],
            &[0x200f4, 0x600f4],
            &[0x3e054, 0x400f0],
            &[0x400fa, 0x500fa],
        ],
        V31 => &[&[0x500fa, 0x2, 0x100fe], &[0x600f4, 0x1e, 0x100f0]],
    };
    // These count the same while the run latch is on, as it always is for a task.
    let running: &[&[u64]] = match isa {
        V207 | V300 => &[&[0x2, 0x500fa, 0x400fa], &[0x1e, 0x600f4, 0x200f4]],
        V31 => &[
            &[0x500fa, 0x2, 0x100fe, 0x400fa],
            &[0x600f4, 0x1e, 0x100f0, 0x200f4],
        ],
    };
    let mut all = vec![req.code];
    let rows = rows
        .iter()
        .chain(running.iter().filter(|_| req.only_count_run));
    for row in rows.filter(|row| row.contains(&req.code)) {
        for code in *row {
            if !all.contains(code) {
                all.push(*code);
            }
        }
    }
    all
}

/// Returns POWER10's exponent and mantissa for a plain number.
pub fn power10_compare(number: u64) -> (u64, u64) {
    let number = number.min(261_120);
    let fits = |exponent: &u64| number >> (2 * exponent) <= 255;
    let exponent = (0..8).find(fits).unwrap();
    (exponent, number >> (2 * exponent))
}

/// Returns the settings that an event shares with others, by name.
fn settings(isa: Isa, code: u64, req: &Request) -> Vec<(&'static str, u64)> {
    let mut list = vec![("ebb", code >> 63)];
    if bits(code, 62, 62) == 1 {
        list.push(("branches", bits(code, 60, 61)));
    }
    if let (1, Some(ifm)) = (code >> 63, req.branch_filter_ifm) {
        list.push(("branches", ifm.into()));
    }
    if bits(code, 16, 19) > 4 {
        return list;
    }
    let unit = bits(code, 12, 15);
    let l1_select = bits(code, 20, 21);
    match isa {
        V207 if bits(code, 22, 22) == 1 => list.push(("l1", l1_select)),
        V207 => {}
        V300 if (6..=9).contains(&unit) => list.push(("bus", bits(code, 0, 7))),
        V31 if unit == 6 => list.push(("l2l3", bits(code, 40, 44))),
        V31 if (7..=9).contains(&unit) => {}
        V300 | V31 => list.push(("l1", l1_select)),
    }
    if isa == V31 {
        list.push(("radix scope", bits(code, 9, 9)));
    }
    if bits(code, 8, 8) == 1 {
        list.push(("sample", bits(code, 24, 28)));
    }
    let sdar_mode = match isa {
        V207 => 0,
        V300 => bits(code, 50, 51),
        V31 => bits(code, 22, 23),
    };
    // A marked event may name the default, which requests nothing.
    if sdar_mode != 0 && bits(code, 8, 8) == 0 {
        list.push(("sdar mode", sdar_mode));
    }
    if is_fab_match(isa, code) {
        list.push(("fab match", bits(code, 32, 39)));
    } else if isa == V207 || bits(code, 29, 31) != 0 {
        list.push(("threshold", bits(code, 29, 39)));
        match isa {
            V207 | V300 => list.push(("compare", bits(code, 40, 49))),
            V31 => {
                let (exponent, mantissa) = power10_compare(req.config1);
                list.push(("exponent", exponent));
                list.push(("mantissa", mantissa));
            }
        }
    }
    list
}

/// Returns the different branch filters that events want, as EBB events or for branch stacks.
pub fn filters(group: &[Request]) -> BTreeSet<u64> {
    let of_programs = group.iter().filter(|req| bits(req.code, 62, 62) == 1);
    let of_stacks = group.iter().filter_map(|req| req.branch_filter_ifm);
    let of_programs = of_programs.map(|req| bits(req.code, 60, 61));
    of_programs.chain(of_stacks.map(u64::from)).collect()
}

/// Returns counters (1 to 6) and codes of the first choice of codes that can be counted at the same
/// time, in the first possible placement. With `strict`, all branch stacks must want the same
/// filter.
pub fn solve(isa: Isa, group: &[Request], strict: bool) -> Option<Vec<(usize, u64)>> {
    if strict && filters(group).len() > 1 {
        return None;
    }
    let lists: Vec<_> = group.iter().map(|req| codes(isa, req)).collect();
    let mut chosen = Vec::new();
    choose(isa, group, &lists, &mut chosen)
}

fn choose(
    isa: Isa,
    group: &[Request],
    lists: &[Vec<u64>],
    chosen: &mut Vec<u64>,
) -> Option<Vec<(usize, u64)>> {
    let Some(list) = lists.get(chosen.len()) else {
        if !settings_agree(isa, group, chosen) {
            return None;
        }
        let placed = place(chosen, &mut Vec::new())?;
        return Some(placed.into_iter().zip(chosen.iter().copied()).collect());
    };
    for code in list {
        chosen.push(*code);
        let found = choose(isa, group, lists, chosen);
        chosen.pop();
        if found.is_some() {
            return found;
        }
    }
    None
}

fn settings_agree(isa: Isa, group: &[Request], codes: &[u64]) -> bool {
    let pairs = codes.iter().zip(group);
    let all: Vec<_> = pairs.flat_map(|(c, req)| settings(isa, *c, req)).collect();
    let agree = |(name, value): &(&str, u64)| all.iter().all(|(n, v)| n != name || v == value);
    let on_bus = |c: &&u64| (6..=9).contains(&bits(**c, 12, 15));
    let bus: Vec<_> = codes.iter().filter(on_bus).collect();
    let led = bus.iter().any(|c| bits(**c, 16, 19) == 4);
    all.iter().all(agree) && (isa != V300 || bus.is_empty() || led)
}

/// Tries every counter for every event, in order.
fn place(codes: &[u64], taken: &mut Vec<usize>) -> Option<Vec<usize>> {
    let Some(code) = codes.get(taken.len()) else {
        return Some(taken.clone());
    };
    for counter in 1..=6 {
        let allowed = match bits(*code, 16, 19) {
            0 => counter <= 4,
            named => named == counter as u64,
        };
        if allowed && !taken.contains(&counter) {
            taken.push(counter);
            let found = place(codes, taken);
            taken.pop();
            if found.is_some() {
                return found;
            }
        }
    }
    None
}

// SPDX-License-Identifier: GPL-2.0
//! Search for the groups of six that cost the solver the most: hill climbing from random groups. A
//! step changes one event or exchanges two, because the order of the events decides how far the
//! solver gets before it backtracks.

use isa207::CpuModel;
use isa207::Request;
use pmu_selftests::random::Random;

use crate::cost;
use crate::group;

/// Events with alternatives on some CPU.
const FLEXIBLE: [u64; 26] = [
    0x1e, 0x2, 0x500fa, 0x600f4, 0x200f4, 0x400fa, 0x20036, 0x40036, 0x200f2, 0x300f2, 0x3e054,
    0x400f0, 0x10134, 0x301e2, 0x10138, 0x40138, 0x18082, 0x3e05e, 0x1d14e, 0x401e8, 0x1e054,
    0x4000a, 0x2013c, 0x3012e, 0x100f0, 0x100fe,
];
/// Events without alternatives, which take a counter or a setting from the others.
const FIXED: [u64; 9] = [
    0x1001e, 0x2001e, 0x3001e, 0x4001e, 0x4080, 0x40a0, 0x26880, 0x46080, 0x104_01e0,
];
/// Number of unsuccessful steps after which a climb ends.
const PATIENCE: u32 = 300;
/// Number of groups that are printed.
const SHOWN: usize = 8;

/// Returns a random event of the CPU. Three of four have alternatives.
fn event(random: &mut Random, model: &CpuModel) -> Request {
    let code = match random.below(8) {
        0 => random.pick(&FIXED),
        1 => {
            let named: Vec<_> = model.named_events().map(|event| event.code).collect();
            random.pick(&named)
        }
        _ => random.pick(&FLEXIBLE),
    };
    Request {
        only_count_run: !random.once_in(8),
        ..group::event(model, code)
    }
}

/// Measures `groups` groups of six and prints those that cost the most.
pub fn run(model: &CpuModel, groups: u32) {
    let mut random = Random::new(1, &[]);
    let mut found: Vec<(u64, String)> = Vec::new();
    let mut tried = 0;
    while tried < groups {
        let mut group = [(); 6].map(|()| event(&mut random, model));
        let mut cost = cost::of(model, &group);
        let mut idle = 0;
        while idle < PATIENCE && tried < groups {
            let mut other = group;
            let (a, b) = (random.below(6) as usize, random.below(6) as usize);
            if a == b {
                other[a] = event(&mut random, model);
            } else {
                other.swap(a, b);
            }
            let other_cost = cost::of(model, &other);
            tried += 1;
            idle = if other_cost > cost { 0 } else { idle + 1 };
            if other_cost >= cost {
                (group, cost) = (other, other_cost);
            }
        }
        found.push((cost, group::show(&group)));
    }
    found.sort_by(|a, b| b.cmp(a));
    found.dedup();
    println!("{}, {tried} groups tried:", model.name());
    for (cost, group) in found.iter().take(SHOWN) {
        println!("  {cost} {group}");
    }
}

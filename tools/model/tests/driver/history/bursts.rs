// SPDX-License-Identifier: GPL-2.0

//! Random histories. Single random steps rarely lead to EBB groups of a task that take turns, or to
//! contexts that are swapped. So steps for these come in bursts on the same CPUs, and in between
//! the program runs and writes its registers.

use super::op::Op;
use pmu_model::Random;

/// Number of steps in a burst, after its first one.
const LENGTH: usize = 12;

/// Returns a history of this many steps.
pub fn history(random: &mut Random, length: usize) -> Vec<Op> {
    let mut history = Vec::new();
    while history.len() < length {
        match random.below(100) {
            0 => groups(random, &mut history),
            1 => clones(random, &mut history),
            _ => history.push(Op::random(random)),
        }
    }
    history.truncate(length);
    history
}

/// Returns a history with the driver interposed, which has more EBB groups. All other events belong
/// to the built-in driver: their contexts are not swapped, and nothing about them is compared.
pub fn interposed(random: &mut Random, length: usize) -> Vec<Op> {
    let mut history = Vec::new();
    while history.len() < length {
        match random.below(40) {
            0 => groups(random, &mut history),
            1 => history.push(Op::OpenEbb(byte(random), byte(random))),
            2 => history.push(Op::Reload),
            _ => history.push(Op::random(random)),
        }
    }
    history.retain(|op| !matches!(op, Op::Clone(..) | Op::Throttle(_) | Op::Elapse(_)));
    history
}

/// Returns a random byte.
fn byte(random: &mut Random) -> u8 {
    random.below(256) as u8
}

/// Adds a burst in which the program of a CPU has several EBB groups. They may be bound to this CPU or
/// to another one, to which the program moves.
fn groups(random: &mut Random, history: &mut Vec<Op>) {
    let (mut here, mut there) = (byte(random) & 3, byte(random) & 3);
    history.push(Op::Switch(here, byte(random)));
    for _ in 0..LENGTH {
        let op = match random.below(12) {
            0..=4 => {
                let bound = if random.one_in(2) { here } else { there };
                Op::Turn(here, byte(random) & !6 | bound << 1)
            }
            5..=7 => Op::run(random, here),
            8..=9 => Op::User(here, Op::write(random)),
            10 if random.one_in(4) => Op::Suspend(random.one_in(2)),
            _ => {
                (here, there) = (there, here);
                Op::Migrate(there, here << 1)
            }
        };
        history.push(op);
    }
}

/// Adds a burst in which a CPU switches between tasks whose contexts are clones.
fn clones(random: &mut Random, history: &mut Vec<Op>) {
    let cpu = byte(random) & 3;
    history.push(Op::Switch(cpu, byte(random)));
    for _ in 0..LENGTH {
        let op = match random.below(12) {
            0..=5 => Op::Clone(cpu, Op::wish(random)),
            6..=9 => Op::run(random, cpu),
            10 => Op::Hold(cpu),
            _ => Op::Read(byte(random)),
        };
        history.push(op);
    }
}

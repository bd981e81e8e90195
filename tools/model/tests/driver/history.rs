// SPDX-License-Identifier: GPL-2.0

//! Random histories of tasks and events, under the driver. After each step every program's counts,
//! samples and registers must be those of a PMU of its own.
//!
//! A history is a list of [`Op`]s, which says nothing of what is there: each picks what it needs by
//! number. So a history stays one when a part of it is left out, which is how one that fails is made
//! short.
//!
//! | file | subject |
//! |---|---|
//! | `op.rs` | the operations, and random ones |
//! | `bursts.rs` | random histories |
//! | `world.rs`, `world/` | what they do |
//! | `oracle.rs` | what the events should have counted and sampled |
//! | `program.rs`, `program/` | what a program with EBBs should find in its registers: by a facility of its own, and predicted without one |
//! | `text.rs` | what programs are made of |
//! | `shrink.rs` | making a history short that fails, and its table |
//!
//! `MODEL_STEPS` is how many steps each processor takes, `MODEL_SEED` with which they begin.

mod bursts;
pub mod op;
pub mod oracle;
mod program;
mod shrink;
pub mod text;
mod world;

use crate::machine::Kind;
use op::Op;
use pmu_model::{Chance, Processor};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, PoisonError},
};
use world::World;

/// Steps of a history, after which the machine boots anew.
const LENGTH: usize = 400;

/// Random histories reach each counted situation at least once in that many steps.
const MOST_STEPS_BETWEEN: u64 = 20_000;

/// One machine has the driver at a time: some of its state is the module's.
static MACHINE: Mutex<()> = Mutex::new(());

/// Runs a history. Fails with the step that went wrong and what did.
fn run(kind: Kind, history: &[Op], log: bool) -> Result<(), Failure> {
    let mut at = 0;
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new(kind, log);
        for (step, op) in history.iter().enumerate() {
            at = step;
            world.step(op);
        }
        world.end();
    }));
    result.map_err(|panic| Failure {
        at,
        what: panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).into()))
            .unwrap_or_default(),
    })
}

/// Why a history fails.
struct Failure {
    at: usize,
    what: String,
}

fn number(name: &str, otherwise: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(otherwise, |value| value.parse().expect("a number"))
}

/// Runs histories of a processor: on bare metal and in partitions in turn, some of which are in the
/// compatibility mode of POWER9, with CPUs that are shared or dedicated, with an SDAR that stays as the
/// ISA has it or moves as KVM has it, EBBs that need EBE or do not, alerts that are prompt or late, and
/// some with a kernel that PM interrupts outrun.
fn histories(processor: Processor) {
    let _one = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let steps = number("MODEL_STEPS", 400_000);
    let seed = number("MODEL_SEED", 1);
    std::panic::set_hook(Box::new(|_| {}));
    let _ = world::take_reached();
    for round in 0..steps.div_ceil(LENGTH as u64) {
        let mut random = Chance::new(seed.wrapping_mul(0x9e37_79b9) + round);
        let kind = Kind {
            processor,
            hypervisor: round & 1 != 0,
            is_dedicated: round & 16 != 0,
            sdar_moves: round & 2 != 0,
            ebbs_outlive_ebe: round & 4 != 0,
            // Not on POWER8E: what restores PMAO there, in the kernel and here, relies on an alert
            // within an `isync`.
            alerts_come_late: round & 8 != 0 && processor != Processor::Power8E,
            is_interposed: false,
            is_slow: round % 11 == 10,
            is_compatible: false,
            seed: random.bits(),
        }
        .compatible(round & 32 != 0);
        let history = bursts::history(&mut random, LENGTH);
        if let Err(failure) = run(kind, &history, false) {
            let table = shrink::report(kind, &history[..=failure.at]);
            let _ = std::panic::take_hook();
            panic!("{processor:?}, seed {seed}, round {round}: {table}");
        }
    }
    let _ = std::panic::take_hook();
    let reached = world::take_reached();
    for (reached, count) in &reached {
        println!("{processor:?}: {reached:?} in {count} of {steps} steps");
    }
    let is_rare = |(_, count): &&(_, u64)| *count < steps / MOST_STEPS_BETWEEN;
    let rare = reached.iter().find(is_rare);
    assert!(rare.is_none(), "{processor:?}: {rare:?} of {steps} steps");
}

/// Runs histories in partitions in which the driver is interposed. On bare metal KVM leaves a guest's
/// registers on a PMU that the built-in driver does not use, which it does not see to.
fn interposed_histories(processor: Processor) {
    let _one = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let steps = number("MODEL_STEPS", 400_000) / 4;
    let seed = number("MODEL_SEED", 1);
    std::panic::set_hook(Box::new(|_| {}));
    for round in 0..steps.div_ceil(LENGTH as u64) {
        let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9) + round);
        let kind = Kind {
            is_dedicated: round & 1 != 0,
            sdar_moves: round & 2 != 0,
            ebbs_outlive_ebe: round & 4 != 0,
            is_interposed: true,
            seed: random.next(),
            ..Kind::partition(processor)
        };
        let history = bursts::interposed(&mut random, LENGTH);
        if let Err(failure) = run(kind, &history, false) {
            let table = shrink::report(kind, &history[..=failure.at]);
            let _ = std::panic::take_hook();
            panic!("{processor:?}, interposed, seed {seed}, round {round}: {table}");
        }
    }
    let _ = std::panic::take_hook();
    let _ = world::take_reached();
}

macro_rules! processors {
    ($($name:ident, $interposed:ident: $processor:ident,)+) => { $(
        #[test]
        fn $name() {
            histories(Processor::$processor);
        }

        #[test]
        fn $interposed() {
            interposed_histories(Processor::$processor);
        }
    )+ };
}

processors! {
    power8, interposed_power8: Power8,
    power8e, interposed_power8e: Power8E,
    power9, interposed_power9: Power9,
    power10, interposed_power10: Power10,
    power11, interposed_power11: Power11,
}

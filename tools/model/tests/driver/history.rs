// SPDX-License-Identifier: GPL-2.0

//! Random histories of tasks and events that run under the driver. After each step the counts,
//! samples and registers of every program must be those of a PMU of its own.
//!
//! A history is a list of [`Op`]s. An operation does not name what it works on, but picks it by
//! number from what exists then. So a history is still valid when some of its operations are
//! removed, which is how a failing one is shortened.
//!
//! | file | subject |
//! |---|---|
//! | `op.rs` | the operations, and random ones |
//! | `bursts.rs` | random histories |
//! | `world.rs`, `world/` | the effects of the operations |
//! | `oracle.rs` | what the events should have counted and sampled |
//! | `program.rs`, `program/` | what a program with EBBs should find in its registers: according to a facility of its own, and predicted without one |
//! | `program_code.rs` | the code of programs |
//! | `shrink.rs` | shortening a failing history, and printing its table |
//!
//! `MODEL_STEPS` is the number of steps for each processor, `MODEL_SEED` the seed of the first
//! history.

mod bursts;
pub mod op;
pub mod oracle;
mod program;
pub mod program_code;
mod shrink;
mod world;

use crate::machine::Kind;
use op::Op;
use pmu_model::{Processor, Random};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, PoisonError},
};
use world::World;

/// Steps of a history, after which the machine boots again.
const LENGTH: usize = 400;

/// Random histories reach each counted situation at least once in this number of steps.
const MOST_STEPS_BETWEEN: u64 = 20_000;

/// Lock for tests with a machine. Only one machine can have the driver, because some state is
/// global in the module.
static MACHINE: Mutex<()> = Mutex::new(());

/// Runs a history. Fails with the step that went wrong and the reason.
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

/// A failure of a history: the step, and the reason.
struct Failure {
    at: usize,
    what: String,
}

fn number(name: &str, otherwise: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(otherwise, |value| value.parse().expect("a number"))
}

/// Runs histories of a processor. They alternate between bare metal and partitions, some in the
/// compatibility mode of POWER9, and vary these: shared or dedicated CPUs; SDAR fixed after an
/// alert (as in the ISA) or not (as in KVM); EBBs with or without EBE; prompt or late alerts; and
/// sometimes a kernel that PM interrupts overload.
fn histories(processor: Processor) {
    let _one = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let steps = number("MODEL_STEPS", 400_000);
    let _ = world::take_reached();
    run_rounds(&format!("{processor:?}"), steps, |round, random| {
        let kind = Kind {
            processor,
            hypervisor: round & 1 != 0,
            is_dedicated: round & 16 != 0,
            sdar_changes: round & 2 != 0,
            ebbs_outlive_ebe: round & 4 != 0,
            // Not on POWER8E: code that restores PMAO there, in the kernel and here, relies on an
            // alert within an `isync`.
            may_delay_alerts: round & 8 != 0 && processor != Processor::Power8E,
            is_interposed: false,
            is_slow: round % 11 == 10,
            is_compatible: false,
            seed: random.bits(),
        }
        .compatible(round & 32 != 0);
        let history = bursts::history(random, LENGTH);
        (kind, history)
    });
    let reached = world::take_reached();
    for (reached, count) in &reached {
        println!("{processor:?}: {reached:?} in {count} of {steps} steps");
    }
    let is_rare = |(_, count): &&(_, u64)| *count < steps / MOST_STEPS_BETWEEN;
    let rare = reached.iter().find(is_rare);
    assert!(rare.is_none(), "{processor:?}: {rare:?} of {steps} steps");
}

/// Runs histories in which the driver is interposed.
fn interposed_histories(processor: Processor) {
    let _one = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let steps = number("MODEL_STEPS", 400_000) / 4;
    run_rounds(
        &format!("{processor:?}, interposed"),
        steps,
        |round, random| {
            let kind = Kind {
                hypervisor: round & 8 != 0,
                is_dedicated: round & 1 != 0,
                sdar_changes: round & 2 != 0,
                ebbs_outlive_ebe: round & 4 != 0,
                is_interposed: true,
                seed: random.bits(),
                ..Kind::partition(processor)
            };
            let history = bursts::interposed(random, LENGTH);
            (kind, history)
        },
    );
    let _ = world::take_reached();
}

/// Runs random histories with `steps` steps in all. `draw` returns the machine and the history of a
/// round. Fails with `name` and a table of the shortest history that fails.
fn run_rounds(name: &str, steps: u64, draw: impl Fn(u64, &mut Random) -> (Kind, Vec<Op>)) {
    let seed = number("MODEL_SEED", 1);
    std::panic::set_hook(Box::new(|_| {}));
    for round in 0..steps.div_ceil(LENGTH as u64) {
        let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9) + round);
        let (kind, history) = draw(round, &mut random);
        if let Err(failure) = run(kind, &history, false) {
            let table = shrink::report(kind, &history[..=failure.at]);
            let _ = std::panic::take_hook();
            panic!("{name}, seed {seed}, round {round}: {table}");
        }
    }
    let _ = std::panic::take_hook();
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

// SPDX-License-Identifier: GPL-2.0

//! The model beside RTL: Microwatt's PMU in VHDL, which GHDL simulates, takes the same random steps
//! as the model. After each step every register must be the same.
//!
//! | file | subject |
//! |---|---|
//! | `walk.rs` | random steps of the model, and the state of the registers after each |
//! | `testbench.vhdl` | the same steps on the RTL |
//!
//! `tools/model/README.md` lists what the comparison leaves out, and why.
//!
//! `RTL_STEPS` is the number of steps, `MODEL_SEED` the seed. `PMU_RTL` is the folder with GHDL and
//! the VHDL (`scripts/setup --print rtl`).

mod walk;

use pmu_model::Processor;
use std::{
    collections::VecDeque,
    env,
    io::{BufRead, BufReader, BufWriter, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, sync_channel},
    thread,
};
use walk::{Expected, REGISTERS, Walk};

/// Processors of the RTL's version of the ISA, or of a later one.
const PROCESSORS: [Processor; 3] = [Processor::Power9, Processor::Power10, Processor::Power11];

/// Number of steps that a failure shows.
const STEPS_SHOWN: usize = 6;

/// Number of steps that the model may be ahead of the RTL.
const STEPS_AHEAD: usize = 1000;

fn number(name: &str, otherwise: u64) -> u64 {
    let value = env::var(name).ok();
    value.map_or(otherwise, |value| value.parse().expect("a number"))
}

/// Starts the simulator, which compiles the RTL and the testbench first.
fn simulator() -> Child {
    let folder = env::var("PMU_RTL").expect("PMU_RTL is not set");
    let folder = Path::new(&folder);
    let sources = ["utils", "decode_types", "common", "pmu"];
    Command::new(folder.join("ghdl/bin/ghdl-mcode"))
        .env("GHDL_PREFIX", folder.join("ghdl/lib/ghdl/mcode/vhdl"))
        .args(["-c", "--std=08"])
        .args(sources.map(|name| folder.join("vhdl").join(name).with_extension("vhdl")))
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/rtl/testbench.vhdl"
        ))
        .args(["-r", "testbench"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("GHDL starts")
}

/// Starts a thread in which the models of all processors take their steps, and which writes each
/// step to the RTL. Returns the states that the RTL must answer. A pipe or channel that breaks ends
/// the thread: the RTL's answers end too early then, or one was wrong.
fn take_steps(rtl: &mut Child, steps: u64, seed: u64) -> Receiver<Expected> {
    let mut to_rtl = BufWriter::new(rtl.stdin.take().expect("a pipe"));
    let (sender, receiver) = sync_channel(STEPS_AHEAD);
    thread::spawn(move || {
        for (processor, seed) in PROCESSORS.into_iter().zip(seed..) {
            let mut walk = Walk::new(processor, seed);
            for step in 0..steps.div_ceil(PROCESSORS.len() as u64) {
                let (line, mut expected) = walk.step();
                expected.what = format!("{processor:?}, {step}: {}\n", expected.what);
                if writeln!(to_rtl, "{line}").is_err() || sender.send(expected).is_err() {
                    return;
                }
            }
        }
    });
    receiver
}

/// Returns the differences between an answer of the RTL and what it must be.
fn differences(answer: &str, expected: &Expected) -> String {
    let mut fields = answer.split_whitespace();
    let mut found = String::new();
    for ((name, _), (value, mask)) in REGISTERS.iter().zip(expected.registers) {
        let field = fields.next().unwrap_or_default();
        let is_same = u64::from_str_radix(field, 16).is_ok_and(|rtl| rtl & mask == value & mask);
        if mask != 0 && !is_same {
            found += &format!("{name}: model {value:016x}, RTL {field}, compared {mask:016x}\n");
        }
    }
    let interrupt = fields.next().unwrap_or_default();
    if interrupt != if expected.interrupt { "1" } else { "0" } {
        found += &format!("interrupt: model {}, RTL {interrupt}\n", expected.interrupt);
    }
    found
}

#[test]
#[ignore = "scripts/setup rtl has not made the entry of the cache with GHDL and pmu.vhdl"]
fn every_register_is_that_of_the_rtl() {
    let (steps, seed) = (number("RTL_STEPS", 30_000), number("MODEL_SEED", 1));
    let mut rtl = simulator();
    let expected = take_steps(&mut rtl, steps, seed);
    let mut answers = BufReader::new(rtl.stdout.take().expect("a pipe")).lines();
    let mut last = VecDeque::new();
    let (mut values, mut alerts) = (0, 0);
    for (step, expected) in expected.iter().enumerate() {
        let Some(Ok(answer)) = answers.next() else {
            panic!("the simulator ended before its answer to step {step}");
        };
        let found = differences(&answer, &expected);
        last.truncate(STEPS_SHOWN);
        last.push_front(expected.what);
        if !found.is_empty() {
            let last: String = last.into_iter().rev().collect();
            panic!("seed {seed}; the last steps:\n{last}{found}");
        }
        let compared = expected.registers.iter().filter(|(_, mask)| *mask != 0);
        values += compared.count();
        alerts += u64::from(expected.alert);
    }
    println!("{steps} steps, {alerts} alerts, {values} values of registers compared");
    assert!(alerts >= steps / 50, "{alerts} alerts in {steps} steps");
}

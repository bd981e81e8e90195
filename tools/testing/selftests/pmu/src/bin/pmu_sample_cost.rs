// SPDX-License-Identifier: GPL-2.0
//! What a sample costs in instructions: the same work with and without samples,
//! by a clock that instructions make. `sample_cost.sh` compares drivers with it.
//!
//! usage: pmu_sample_cost            prints "VARIANT SAMPLES INSTRUCTIONS_EACH"
//!
//! A variant that the driver refuses is printed as "VARIANT refused".

use std::io;

use pmu_selftests::branching::Program;
use pmu_selftests::fields::branch::*;
use pmu_selftests::fields::sample::*;
use pmu_selftests::prelude::*;

/// Short, so that ticks, which fall into all runs, count for little.
const PERIOD: u64 = 5_003;
/// Some 11 million instructions.
const ROUNDS: u64 = 900_000;

const PLAIN: u64 = IP | TID | TIME;

/// Instructions that a body takes, with all the kernel does meanwhile: a time of
/// 1 ns each, by a time base of 512 MHz.
fn instructions(body: impl FnOnce()) -> f64 {
    let start = machine::time_base();
    body();
    (machine::time_base() - start) as f64 * 1e9 / machine::TIME_BASE_HZ as f64
}

/// The least of several measurements: ticks and others' work only add to it.
fn least(mut measure: impl FnMut() -> io::Result<(u64, f64)>) -> io::Result<(u64, f64)> {
    let mut best = measure()?;
    for _ in 1..9 {
        let next = measure()?;
        if next.1 < best.1 {
            best = next;
        }
    }
    Ok(best)
}

/// Samples of the work and what each of them adds to it.
fn cost(attr: &Attr, program: &Program) -> io::Result<(u64, f64)> {
    // The same event with the same counter, whose period never ends: what the
    // event costs without samples, at switches and ticks, is no part of it.
    let never = attr.clone().sample_period(1 << 40);
    let (_, without) = least(|| measure(&never, program))?;
    let (samples, with) = least(|| measure(attr, program))?;
    Ok((samples, (with - without) / samples.max(1) as f64))
}

fn measure(attr: &Attr, program: &Program) -> io::Result<(u64, f64)> {
    let mut recorder = Recorder::open(attr.clone(), 512)?;
    let mut took = 0.0;
    let records = recorder.records(|| took = instructions(|| program.run(ROUNDS)))?;
    let samples = records.iter().filter(|record| record.is_sample());
    Ok((samples.count() as u64, took))
}

fn main() -> io::Result<()> {
    if !machine::instructions_make_time() {
        println!("no instruction clock");
        std::process::exit(4);
    }
    // Or the kernel would throttle.
    machine::set_sample_rate(1_000_000)?;
    let program = Program::plain();
    // Cycles, which an emulator counts in any code.
    let plain = Attr::cycles()
        .sampling(PERIOD, PLAIN)
        .wakeup_events(1 << 20);
    let branches = |filter| plain.clone().branches(USER | filter);
    for (name, attr) in [
        ("plain", plain.clone()),
        ("any", branches(ANY)),
        ("any_call", branches(ANY_CALL)),
        ("cond", branches(COND)),
        ("any_ret", branches(ANY_RETURN)),
        ("any,save_type", branches(ANY | TYPE_SAVE)),
    ] {
        match cost(&attr, &program) {
            Ok((samples, each)) => println!("{name} {samples} {each:.0}"),
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                println!("{name} refused");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

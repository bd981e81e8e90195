// SPDX-License-Identifier: GPL-2.0
//! What a sample costs in instructions: the same work with and without samples,
//! by a clock that instructions make. `sample_cost.sh` compares drivers with it.
//!
//! usage: pmu_sample_cost            prints "VARIANT SAMPLES INSTRUCTIONS_EACH"
//!
//! A variant that the driver refuses is printed as "VARIANT refused".

use std::io;

use perf_event::sys;

use perf_event::Attr;
use perf_event::Event;
use pmu_selftests::branching::Program;
use pmu_selftests::fields::branch::USER;
use pmu_selftests::machine;
use pmu_selftests::ring::Ring;

/// Short, so that ticks, which fall into all runs, count for little.
const PERIOD: u64 = 5_003;
/// Some 11 million instructions.
const ROUNDS: u64 = 900_000;

const PLAIN: u64 = (sys::PERF_SAMPLE_IP | sys::PERF_SAMPLE_TID | sys::PERF_SAMPLE_TIME) as u64;

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
    let event: Event = attr.open()?;
    let mut ring = Ring::map(&event, 512)?;
    event.enable()?;
    let took = instructions(|| program.run(ROUNDS));
    event.disable()?;
    let samples = ring
        .take()
        .iter()
        .filter(|record| record.is_sample())
        .count();
    Ok((samples as u64, took))
}

fn main() -> io::Result<()> {
    if !machine::instructions_make_time() {
        println!("no instruction clock");
        std::process::exit(4);
    }
    // Or the kernel would throttle. The rate can be set unless the share is 100.
    std::fs::write("/proc/sys/kernel/perf_cpu_time_max_percent", "25")?;
    std::fs::write("/proc/sys/kernel/perf_event_max_sample_rate", "1000000")?;
    machine::keep_sample_rate()?;
    let program = Program::plain();
    // Cycles, which an emulator counts in any code.
    let plain = Attr::cycles()
        .sampling(PERIOD, PLAIN)
        .wakeup_events(1 << 20);
    let branches = |filter: u32| plain.clone().branches(USER | u64::from(filter));
    for (name, attr) in [
        ("plain", plain.clone()),
        ("any", branches(sys::PERF_SAMPLE_BRANCH_ANY)),
        ("any_call", branches(sys::PERF_SAMPLE_BRANCH_ANY_CALL)),
        ("cond", branches(sys::PERF_SAMPLE_BRANCH_COND)),
        ("any_ret", branches(sys::PERF_SAMPLE_BRANCH_ANY_RETURN)),
        (
            "any,save_type",
            branches(sys::PERF_SAMPLE_BRANCH_ANY | sys::PERF_SAMPLE_BRANCH_TYPE_SAVE),
        ),
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

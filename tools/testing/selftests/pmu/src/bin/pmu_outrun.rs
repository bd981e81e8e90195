// SPDX-License-Identifier: GPL-2.0
//! PM interrupts that outrun the kernel: a program under events that overflow all the
//! time keeps a good part of its CPU, whatever makes perf core forget that it has
//! throttled them. The model tests which samples are held back (`history/world/outrun.rs`).

use pmu_selftests::prelude::*;

/// Instructions of the program between two things that it does.
const ROUND: u64 = 20_000;
/// How long the driver may take to notice, and how long to watch then (ns).
const NOTICED: u64 = 250_000_000;
const WATCHED: u64 = 400_000_000;
/// The part of its work that a program does at least, in per cent: 51 to 69 with the
/// driver, 2 to 3 with the built-in one.
const LEAST: f64 = 40.0;

/// An event whose next period ends before its PM interrupt has returned.
fn stormy() -> Attr {
    Attr::raw(INSTRUCTIONS).sampling(1, 0)
}

/// CPUs of an emulator take turns, and a turn ends as a PM interrupt's handler sets the counters
/// going: a CPU that another one waits for, spinning, finds the short period over whenever it is its
/// turn, and makes no progress, whichever way time is looked at.
fn needs_its_own_turns() -> Outcome {
    if machine::is_emulated()? && cpu::online()?.len() > 1 {
        return ktap::skip("CPUs take turns");
    }
    machine::keep_sample_rate()
}

/// Rounds in a time (ns), per second.
fn speed(time: u64, round: &mut dyn FnMut() -> Outcome) -> Result<f64, Failure> {
    const PER_SECOND: f64 = machine::TIME_BASE_HZ as f64;
    let (mut rounds, mut seconds) = (0.0, 0.0);
    while seconds * 1e9 < time as f64 {
        let start = machine::time_base();
        work::run(ROUND);
        round()?;
        rounds += 1.0;
        seconds += (machine::time_base() - start) as f64 / PER_SECOND;
    }
    Ok(rounds / seconds)
}

/// A child on this CPU that does nothing but yield it.
fn who_yields() -> Result<Peer, Failure> {
    cpu::pin_to(0)?;
    Peer::spawn(|_| {
        loop {
            yield_cpu();
        }
    })
}

fn yield_cpu() {
    // SAFETY: a system call without arguments.
    unsafe { libc::sched_yield() };
}

/// The program gets on under a stormy event, as `round` is done in between: with that
/// event, or with none.
fn gets_on(mut round: impl FnMut(Option<&Event>) -> Outcome) -> Outcome {
    let _other = who_yields()?;
    let alone = speed(WATCHED / 8, &mut || round(None))?;
    let event = stormy().enabled().open()?;
    speed(NOTICED, &mut || round(Some(&event)))?;
    let beside = speed(WATCHED, &mut || round(Some(&event)))?;
    let part = beside * 100.0 / alone;
    println!("{part:.1} % of the work");
    check!(part >= LEAST, "{part:.1} % of the work is done");
    Ok(())
}

/// A switch has a throttled event go on.
fn a_program_that_yields() -> Outcome {
    gets_on(|_| {
        yield_cpu();
        Ok(())
    })
}

/// So does a new period.
fn a_program_that_sets_the_period() -> Outcome {
    let other = stormy().open()?;
    gets_on(|event| Ok(event.unwrap_or(&other).set_period(1)?))
}

/// A new event has not been throttled yet.
fn a_program_that_opens_events() -> Outcome {
    gets_on(|event| {
        let new = stormy().open()?;
        if event.is_some() {
            new.enable()?;
        }
        work::run(ROUND);
        Ok(())
    })
}

ktap::main! {
    first: needs_its_own_turns;
    a_program_that_yields, a_program_that_sets_the_period, a_program_that_opens_events,
}

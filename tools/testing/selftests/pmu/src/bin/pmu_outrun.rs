// SPDX-License-Identifier: GPL-2.0
//! PM interrupts that are faster than the kernel can handle them: a program under events that
//! overflow all the time keeps a good part of its CPU, even if its actions make perf core forget
//! that it has throttled the events. The tests on the model check which samples are held back
//! (`history/world/overload.rs`).

use pmu_selftests::prelude::*;

/// Instructions of the program between two of its actions.
const ROUND: u64 = 20_000;
/// Time in which the driver must react, and time of the measurement after that (ns).
const NOTICED: u64 = 250_000_000;
const WATCHED: u64 = 400_000_000;
/// The least share of its work that a program must get done, in per cent. It gets 51 to 69 with the
/// driver, and 2 to 3 with the built-in one.
const LEAST: f64 = 40.0;

/// Returns an event whose next period ends before the handler of its PM interrupt has returned.
fn stormy() -> Attr {
    Attr::raw(INSTRUCTIONS).sampling(1, 0)
}

/// Skips the tests if the CPUs of an emulator take turns.
///
/// A turn ends when the handler of a PM interrupt starts the counters. If another CPU spins to wait
/// for this one, this one finds its short period over at the start of each turn. It makes no
/// progress, whichever clock measures it.
fn needs_its_own_turns() -> Outcome {
    if machine::is_emulated()? && cpu::online()?.len() > 1 {
        return ktap::skip("CPUs take turns");
    }
    machine::keep_sample_rate()
}

/// Returns the number of rounds per second during `time` (ns).
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

/// Starts a child on this CPU that only yields it.
fn who_yields() -> Result<Peer, Failure> {
    cpu::pin_to(0)?;
    Peer::spawn(|_| {
        loop {
            yield_cpu();
        }
    })
}

fn yield_cpu() {
    // SAFETY: The system call takes no arguments.
    unsafe { libc::sched_yield() };
}

/// Checks that a program makes enough progress under a stormy event while it does `round`
/// repeatedly. `round` gets that event, or `None` in the measurement without it.
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

/// Tests a program that yields: a switch makes a throttled event count again.
fn a_program_that_yields() -> Outcome {
    gets_on(|_| {
        yield_cpu();
        Ok(())
    })
}

/// Tests a program that sets the period, which makes a throttled event count again.
fn a_program_that_sets_the_period() -> Outcome {
    let other = stormy().open()?;
    gets_on(|event| Ok(event.unwrap_or(&other).set_period(1)?))
}

/// Tests a program that opens events, because a new event is not throttled yet.
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

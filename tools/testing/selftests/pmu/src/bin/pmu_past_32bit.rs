// SPDX-License-Identifier: GPL-2.0
//! Counts go on past the 32 bits of a PMC.
//!
//! A PMC overflows when its bit 31 gets set: the kernel has to take it over
//! into the 64-bit count at 2^31 events, and must not lose what came after 2^32.

use std::io;

use perf_event::sys::PERF_SAMPLE_IP;

use ktap::Outcome;
use ktap::check;
use perf_event::Attr;
use pmu_selftests::codes::INSTRUCTIONS;
use pmu_selftests::codes::RUN_INSTRUCTIONS;
use pmu_selftests::codes::on_pmc;
use pmu_selftests::machine;
use pmu_selftests::process::Child;
use pmu_selftests::process::Turnstile;
use pmu_selftests::work;

const PAST_31: u64 = 3 << 30;
const PAST_32: u64 = 5 << 30;

/// The system's own share (ticks above all) may add 1 %.
fn plausible(count: u64, done: u64) -> bool {
    count >= done && count < done + machine::kernel_share(done / 100)
}

fn expect(what: &str, attr: Attr, instructions: u64) -> Outcome {
    let event = attr.open()?;
    let mut done = 0;
    let count = event.count(|| done = work::run(instructions))?;
    check!(
        plausible(count, done),
        "{what}: {done} done, {count} counted"
    );
    Ok(())
}

fn past_2_31() -> Outcome {
    expect("any PMC", Attr::instructions(), PAST_31)
}

fn past_2_32() -> Outcome {
    expect("PMC1", Attr::raw(on_pmc(1, INSTRUCTIONS)), PAST_32)
}

fn past_2_32_on_pmc5() -> Outcome {
    expect("PMC5", Attr::raw(RUN_INSTRUCTIONS), PAST_32)
}

fn past_2_32_on_a_cpu() -> Outcome {
    machine::pin_to(0)?;
    expect("CPU 0", Attr::instructions().on_cpu(0), PAST_32)
}

/// Several short stretches: overflow may fall between a stop and a start.
fn in_pieces() -> Outcome {
    let event = Attr::instructions().open()?;
    let (mut done, mut last) = (0, 0);
    while done < PAST_32 {
        event.enable()?;
        done += work::run(1 << 27);
        event.disable()?;
        let count = event.read()?.value;
        check!(count > last, "{last}, then {count}");
        last = count;
    }
    check!(plausible(last, done), "{done} done, {last} counted");
    Ok(())
}

/// A period too long to end starts the PMC elsewhere, but counts the same.
fn with_a_long_period() -> Outcome {
    let attr = Attr::instructions().sampling(1 << 40, PERF_SAMPLE_IP.into());
    expect("period 2^40", attr, PAST_32)
}

/// Another task's event, read from here when it is over.
fn of_another_task() -> Outcome {
    let gate = Turnstile::new()?;
    let child = Child::spawn(|| -> io::Result<()> {
        gate.pass()?;
        work::run(PAST_32);
        Ok(())
    })?;
    let event = Attr::instructions().enabled().pid(child.pid()).open()?;
    gate.open()?;
    child.wait()?;
    let count = event.read()?.value;
    check!(plausible(count, PAST_32), "{PAST_32} done, {count} counted");
    Ok(())
}

fn main() {
    ktap::run(&[
        ("past_2_31", past_2_31),
        ("past_2_32", past_2_32),
        ("past_2_32_on_pmc5", past_2_32_on_pmc5),
        ("past_2_32_on_a_cpu", past_2_32_on_a_cpu),
        ("in_pieces", in_pieces),
        ("with_a_long_period", with_a_long_period),
        ("of_another_task", of_another_task),
    ])
}

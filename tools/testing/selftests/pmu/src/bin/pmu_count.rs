// SPDX-License-Identifier: GPL-2.0
//! Instructions and cycles of known work, by raw code on each PMC and by
//! generic name, for the calling task.
//!
//! One count holds the way into and out of the kernel as well, so each is taken
//! for two lengths of the work; the difference has to be exact. A timer tick in
//! between would spoil it: the smallest of several counts has none.

use ktap::Outcome;
use ktap::check;
use perf_event::Attr;
use perf_event::Event;
use pmu_selftests::codes::CYCLES;
use pmu_selftests::codes::INSTRUCTIONS;
use pmu_selftests::codes::RUN_CYCLES;
use pmu_selftests::codes::RUN_INSTRUCTIONS;
use pmu_selftests::codes::on_pmc;
use pmu_selftests::least_count;
use pmu_selftests::machine;
use pmu_selftests::work;

/// Instructions that an exact count may be off by.
const SLACK: u64 = 8;

const SHORT: u64 = 1 << 16;
const LONG: u64 = 1 << 20;

fn smallest(event: &Event, instructions: u64) -> perf_event::Result<u64> {
    least_count(event, 10, 0, || {
        work::run(instructions);
    })
}

fn expect_exact(what: &str, attr: &Attr) -> Outcome {
    let event = attr.open()?;
    let (short, long) = (smallest(&event, SHORT)?, smallest(&event, LONG)?);
    let difference = long.wrapping_sub(short);
    check!(
        difference.abs_diff(LONG - SHORT) <= SLACK,
        "{what}: {LONG} instructions gave {long}, {SHORT} gave {short}"
    );
    // The kernel switches the event on and off.
    let most = SHORT + machine::kernel_share(20_000);
    check!(
        (SHORT..most).contains(&short),
        "{what}: {SHORT} instructions gave {short}"
    );
    Ok(())
}

/// Cycles are exact where instructions make the time, else they only grow.
fn expect_cycles(what: &str, attr: &Attr) -> Outcome {
    if machine::instructions_make_time() {
        return expect_exact(what, attr);
    }
    let event = attr.open()?;
    // An emulator runs straight code in no time: the long work has to be long.
    let (short, long) = (smallest(&event, SHORT)?, smallest(&event, 256 * LONG)?);
    check!(short > 0, "{what}: no cycles");
    check!(long > short, "{what}: long work {long}, short work {short}");
    Ok(())
}

fn raw_instructions() -> Outcome {
    expect_exact("any PMC", &Attr::raw(INSTRUCTIONS))?;
    for pmc in 1..=4 {
        let code = on_pmc(pmc, INSTRUCTIONS);
        expect_exact(&format!("{code:#x}"), &Attr::raw(code))?;
    }
    Ok(())
}

fn run_instructions() -> Outcome {
    expect_exact("PMC5", &Attr::raw(RUN_INSTRUCTIONS))?;
    expect_exact("PMC4", &Attr::raw(on_pmc(4, 0xfa)))
}

fn raw_cycles() -> Outcome {
    expect_cycles("any PMC", &Attr::raw(CYCLES))?;
    for pmc in 1..=4 {
        let code = on_pmc(pmc, CYCLES);
        expect_cycles(&format!("{code:#x}"), &Attr::raw(code))?;
    }
    Ok(())
}

fn run_cycles() -> Outcome {
    expect_cycles("PMC6", &Attr::raw(RUN_CYCLES))
}

fn generic_instructions() -> Outcome {
    expect_exact("instructions", &Attr::instructions())
}

fn generic_cycles() -> Outcome {
    expect_cycles("cycles", &Attr::cycles())
}

fn cycles_equal_instructions() -> Outcome {
    if !machine::instructions_make_time() || machine::online_cpus()?.len() > 1 {
        return ktap::skip("needs an instruction clock, and no other CPU that drives it");
    }
    let leader = Attr::instructions().grouped().open()?;
    let _member = Attr::cycles().grouped().open_with(&leader)?;
    leader.enable()?;
    work::run(10 * LONG);
    leader.disable()?;
    let values = leader.read_group()?.values;
    let (instructions, cycles) = (values[0].0, values[1].0);
    // QEMU misses instructions at the ends of pages. This loop crosses none, but ticks
    // of the kernel do, and those of a debug one are long.
    let missed = instructions / if machine::is_debug_kernel() { 50 } else { 1000 };
    check!(
        instructions.abs_diff(cycles) <= missed,
        "{instructions} instructions, {cycles} cycles"
    );
    Ok(())
}

fn nothing_before_enable() -> Outcome {
    let event = Attr::instructions().open()?;
    work::run(LONG);
    let count = event.read()?;
    check!(count.value == 0, "{} counted while disabled", count.value);
    check!(count.enabled == 0 && count.running == 0, "{count:?}");
    Ok(())
}

fn enabled_at_open() -> Outcome {
    let event = Attr::instructions().enabled().open()?;
    let done = work::run(LONG);
    let count = event.read()?;
    check!(count.value >= done, "{count:?} after {done} instructions");
    check!(
        count.enabled > 0 && count.enabled == count.running,
        "{count:?}"
    );
    Ok(())
}

fn main() {
    ktap::run(&[
        ("raw_instructions", raw_instructions),
        ("run_instructions", run_instructions),
        ("raw_cycles", raw_cycles),
        ("run_cycles", run_cycles),
        ("generic_instructions", generic_instructions),
        ("generic_cycles", generic_cycles),
        ("cycles_equal_instructions", cycles_equal_instructions),
        ("nothing_before_enable", nothing_before_enable),
        ("enabled_at_open", enabled_at_open),
    ])
}

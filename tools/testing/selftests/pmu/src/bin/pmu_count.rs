// SPDX-License-Identifier: GPL-2.0
//! Instructions and cycles of known work, for the calling task: with raw codes on each PMC, and
//! with generic names.
//!
//! A count includes the path into and out of the kernel. So each test counts two lengths of work
//! and requires that the difference is exact. A timer tick during the work would change it, and so
//! would perf core's switch key, which is turned off a second after the last event. The smallest of
//! several counts, taken in turns, includes neither.

use pmu_selftests::prelude::*;

/// Instructions by which an exact count may be wrong.
const SLACK: u64 = 8;

const SHORT: u64 = 1 << 16;
const LONG: u64 = 1 << 20;

/// Returns the smallest counts of work of these lengths.
fn smallest(event: &Event, lengths: [u64; 2]) -> perf_event::Result<[u64; 2]> {
    let mut least = [u64::MAX; 2];
    for _ in 0..10 {
        for (least, length) in least.iter_mut().zip(lengths) {
            let count = event.count(|| {
                work::run(length);
            })?;
            *least = (*least).min(count);
        }
    }
    Ok(least)
}

fn expect_exact(what: &str, attr: Attr) -> Outcome {
    let event = attr.open()?;
    let [short, long] = smallest(&event, [SHORT, LONG])?;
    let difference = long.wrapping_sub(short);
    check!(
        difference.abs_diff(LONG - SHORT) <= SLACK,
        "{what}: {LONG} instructions gave {long}, {SHORT} gave {short}"
    );
    // The short count includes the kernel's instructions that enable and disable the event.
    expect_within(what, short, SHORT..SHORT + machine::kernel_share(20_000))
}

/// Checks cycles: exactly if instructions determine the time, else only that they grow.
fn expect_cycles(what: &str, attr: Attr) -> Outcome {
    if machine::instructions_make_time() {
        return expect_exact(what, attr);
    }
    let event = attr.open()?;
    // An emulator runs straight code very fast, so the long work has to be much longer.
    let [short, long] = smallest(&event, [SHORT, 256 * LONG])?;
    check!(short > 0, "{what}: no cycles");
    check!(long > short, "{what}: long work {long}, short work {short}");
    Ok(())
}

/// Checks an event on any PMC, and on each of PMC1 to PMC4.
fn on_each_pmc(expect: fn(&str, Attr) -> Outcome, event: u64) -> Outcome {
    for pmc in 0..=4 {
        expect(&format!("PMC{pmc}"), Attr::raw(on_pmc(pmc, event)))?;
    }
    Ok(())
}

fn run_instructions() -> Outcome {
    expect_exact("PMC5", Attr::raw(RUN_INSTRUCTIONS))?;
    expect_exact("PMC4", Attr::raw(on_pmc(4, 0xfa)))
}

fn cycles_equal_instructions() -> Outcome {
    if !machine::instructions_make_time() || cpu::online()?.len() > 1 {
        return ktap::skip("needs an instruction clock, and no other CPU that drives it");
    }
    let leader = Attr::instructions().grouped().open()?;
    let _member = Attr::cycles().grouped().open_with(&leader)?;
    leader.enable()?;
    work::run(10 * LONG);
    leader.disable()?;
    let values = leader.read_group()?.values;
    let (instructions, cycles) = (values[0].0, values[1].0);
    // QEMU does not count instructions at the ends of pages. This loop crosses no page boundary,
    // but the kernel's ticks do, and those of a debug kernel are long.
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

ktap::main! {
    raw_instructions = on_each_pmc(expect_exact, INSTRUCTIONS),
    run_instructions,
    raw_cycles = on_each_pmc(expect_cycles, CYCLES),
    run_cycles = expect_cycles("PMC6", Attr::raw(RUN_CYCLES)),
    generic_instructions = expect_exact("instructions", Attr::instructions()),
    generic_cycles = expect_cycles("cycles", Attr::cycles()),
    cycles_equal_instructions, nothing_before_enable, enabled_at_open,
}

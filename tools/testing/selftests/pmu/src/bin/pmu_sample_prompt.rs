// SPDX-License-Identifier: GPL-2.0
//! Samples in the handlers of other interrupts. These handlers let PM interrupts through if the
//! PMU's driver requests it: a sample is then taken where the counter overflows, with the handler's
//! callers, and not at the end of the handler. In QEMU the module requests it only with the
//! parameter `prompt=1`, so this test is not part of `run_pmu_selftests`.

use std::fs;
use std::io;
use std::ops::Range;
use std::time::Duration;

use pmu_selftests::fields::sample::*;
use pmu_selftests::kernel_work;
use pmu_selftests::prelude::*;

/// The function that calls all work in a timer's interrupt.
const HANDLER: &str = "hrtimer_interrupt";

const PERIOD: u64 = 12_011;
const TIME: Duration = Duration::from_millis(200);
const PAGES: usize = 128;

/// The fewest samples in the handler. [`TIME`] gives 30 to 400 of them with `prompt=1`, depending
/// on how the periods coincide with the timer's, and none with `prompt=0`.
const LEAST: usize = 5;

/// Returns the addresses of a kernel function: from its symbol to the next one.
fn function(name: &str) -> Result<Range<u64>, Failure> {
    let text = fs::read_to_string("/proc/kallsyms")?;
    let mut symbols = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if let (Some(address), Some(_), Some(symbol)) = (words.next(), words.next(), words.next()) {
            let address = u64::from_str_radix(address, 16).map_err(io::Error::other)?;
            symbols.push((address, symbol));
        }
    }
    symbols.sort_unstable();
    let Some(start) = symbols.iter().find(|symbol| symbol.1 == name) else {
        return Err(Failure::Skip(
            "the kernel has no names of its functions".into(),
        ));
    };
    let start = start.0;
    let next = symbols.iter().find(|symbol| symbol.0 > start);
    match next {
        Some(next) if start != 0 => Ok(start..next.0),
        _ => Err(Failure::Skip("the kernel hides its addresses".into())),
    }
}

/// Tests a program that a timer interrupts repeatedly, so that PM interrupts come in the timer's
/// handlers.
fn within_the_timers_interrupt() -> Outcome {
    machine::needs_pace()?;
    cpu::pin_to(0)?;
    let handler = function(HANDLER)?;
    let attr = Attr::raw(on_pmc(1, INSTRUCTIONS))
        .sampling(machine::period(PERIOD), IP | CALLCHAIN)
        .exclude_callchain_user(true);
    let mut done = Ok(());
    let timers = ("timers", kernel_work::timers as _);
    let samples =
        Recorder::open(attr, PAGES)?.samples(|| done = kernel_work::run_for(&timers, TIME))?;
    done?;
    let in_handler = |s: &&Sample| s.callchain.iter().any(|entry| handler.contains(entry));
    let within = samples.iter().filter(in_handler).count();
    println!("{within} of {} samples", samples.len());
    check!(
        samples.len() > 100 && within >= LEAST,
        "{within} of {} samples within {HANDLER}()",
        samples.len()
    );
    Ok(())
}

ktap::main! {
    first: machine::keep_sample_rate;
    within_the_timers_interrupt,
}

// SPDX-License-Identifier: GPL-2.0
//! Samples that come one right after another: they leave their CPU time for other things.

use std::thread;
use std::time::Duration;
use std::time::Instant;

use pmu_selftests::prelude::*;

/// Room for each sample.
const PAGES: usize = 512;

const FIELDS: u64 = (sys::PERF_SAMPLE_PERIOD | sys::PERF_SAMPLE_READ) as u64;

/// How often the task gives the CPU up in this time.
fn yields_in(time: Duration) -> u64 {
    let start = Instant::now();
    let mut yields = 0;
    while start.elapsed() < time {
        thread::yield_now();
        yields += 1;
    }
    yields
}

/// A sample for each instruction, of a task that perf core lets go on at each switch: there would
/// be no time but for interrupts. (Under the kernel's built-in driver there is none.)
fn storms_leave_time() -> Outcome {
    machine::needs_pace()?;
    cpu::pin_to(0)?;
    let other = Peer::spawn(|link| {
        while !link.is_told() {
            thread::yield_now();
        }
        Ok(())
    })?;
    let time = machine::sampling_time(Duration::from_millis(50));
    let alone = yields_in(time);
    let mut recorder = Recorder::open(Attr::raw(CYCLES).sampling(1, FIELDS), PAGES)?;
    let mut beside = 0;
    let samples = recorder.samples(|| {
        // The driver looks on for a while, the longer the more CPUs an emulator gives turns to.
        for _ in 0..40 {
            beside = yields_in(time);
            if beside * 10 >= alone {
                break;
            }
        }
    })?;
    let longest = samples
        .iter()
        .map(|sample| sample.period)
        .max()
        .unwrap_or(0);
    println!(
        "{alone} yields alone, {beside} beside {} samples of {longest} cycles at most",
        samples.len()
    );
    check!(longest > 50_000, "no sample while they are held back");
    check!(
        beside * 10 >= alone,
        "{beside} yields, {alone} without samples"
    );
    let mut due = 0;
    for sample in &samples {
        due += sample.period;
        let count = sample.read.values[0].value;
        expect_within("count at the end of a period", count, due..due + 4000)?;
    }
    other.tell_and_join()
}

ktap::main! {
    first: machine::keep_sample_rate;
    storms_leave_time,
}

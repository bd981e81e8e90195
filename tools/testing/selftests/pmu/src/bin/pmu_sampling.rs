// SPDX-License-Identifier: GPL-2.0
//! Sampling with a fixed period: there are as many samples as the count has periods, at the
//! addresses that the program executed. `pmu_overflow_signals` tests signals.

use std::io;
use std::ops::Range;

use pmu_selftests::TASK_AND_CPU;
use pmu_selftests::fields::sample::*;
use pmu_selftests::prelude::*;

const PERIOD: u64 = 100_000;
const WORK: u64 = 50_000_000;

/// Returns the event's count and its records while `body` runs.
fn records(attr: Attr, body: impl FnOnce()) -> io::Result<(u64, Vec<Record>)> {
    let mut recorder = Recorder::open(attr, 64)?;
    let records = recorder.records(body)?;
    Ok((recorder.event.read()?.value, records))
}

fn samples(records: &[Record]) -> usize {
    records.iter().filter(|record| record.is_sample()).count()
}

fn do_work() {
    work::run(WORK);
}

fn as_many_as_periods() -> Outcome {
    machine::needs_pace()?;
    cpu::pin_to(0)?;
    for raw in TASK_AND_CPU {
        for code in [0, 1, 4].map(|pmc| on_pmc(pmc, INSTRUCTIONS)) {
            for period in [machine::period(30_011), PERIOD, 1_000_000] {
                let attr = raw(code).sampling(period, IP | TID);
                let (count, records) = records(attr.clone(), do_work)?;
                check!(!records.iter().any(Record::is_loss), "records were lost");
                let samples = Sample::all(&attr, &records)?;
                let ours = samples
                    .iter()
                    .filter(|sample| sample.pid == std::process::id());
                let (ours, taken, due) = (ours.count(), samples.len() as u64, count / period);
                check!(
                    taken <= due && ours >= fewest_samples(WORK, period),
                    "{code:#x}: period {period}, {count} counted: {taken} samples, {due} due, \
                     {ours} of this task"
                );
            }
        }
    }
    Ok(())
}

fn addresses_tell_functions_apart() -> Outcome {
    let mut recorder = Recorder::open(Attr::instructions().sampling(PERIOD, IP), 64)?;
    let samples = recorder.samples(|| {
        for _ in 0..50 {
            work::run(WORK / 50);
            work::run_elsewhere(3 * WORK / 50);
        }
    })?;
    let within = |code: Range<u64>| samples.iter().filter(|s| code.contains(&s.ip)).count();
    let (one, three) = (within(work::code()), within(work::code_elsewhere()));
    let share = three as f64 / (one + three) as f64;
    check!(
        one > 100 && (share - 0.75).abs() < 0.05,
        "{one} samples in one quarter, {three} in three quarters"
    );
    check!(
        (one + three) * 100 >= samples.len() * 95,
        "{one} and {three} of {} samples",
        samples.len()
    );
    Ok(())
}

/// Tests the longest period that fits into a PMC, the shortest one that does not, and two periods
/// of a longer one.
fn periods_around_2_31() -> Outcome {
    for (period, due) in [((1 << 31) - 1, 1), (1 << 31, 1), (3 << 30, 2)] {
        let (count, records) = records(Attr::instructions().sampling(period, IP), || {
            work::run(due * period + period / 8);
        })?;
        let taken = samples(&records) as u64;
        check!(
            taken == due,
            "period {period}, {count} counted: {taken} samples"
        );
    }
    Ok(())
}

/// Tests more interrupts than the kernel allows: it stops the event until the next tick and records
/// that, and the program and other events continue.
fn tiny_period(period: u64) -> Outcome {
    let event = Attr::instructions().sampling(period, IP).open()?;
    let mut ring = Ring::map(&event, 64)?;
    event.enable()?;
    let other = Attr::raw(on_pmc(4, INSTRUCTIONS)).open()?;
    let (count, done) = count_work(&other, WORK)?;
    check!(
        count >= done,
        "{done} done, {count} counted by a plain event"
    );
    let records = ring.take();
    let throttled = records.iter().filter(|record| record.is_loss()).count();
    println!("{} samples, throttled {throttled} times", samples(&records));
    check!(samples(&records) > 100, "{} samples", samples(&records));
    check!(throttled > 1, "throttled {throttled} times");
    Ok(())
}

ktap::main! {
    first: machine::keep_sample_rate;
    as_many_as_periods, addresses_tell_functions_apart, periods_around_2_31,
    tiny_period = tiny_period(100),
    period_of_one = tiny_period(1),
}

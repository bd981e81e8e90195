// SPDX-License-Identifier: GPL-2.0
//! How often samples come: at a frequency, which perf reaches by changing the
//! period; at a new period; and no more often than the kernel allows, which stops
//! an event for the rest of a tick.

use std::io;
use std::ops::RangeInclusive;

use pmu_selftests::TASK_AND_CPU;
use pmu_selftests::first_good;
use pmu_selftests::prelude::*;

const PAGES: usize = 32;
const SECOND: u64 = 1_000_000_000;

const FIELDS: u64 =
    (sys::PERF_SAMPLE_TIME | sys::PERF_SAMPLE_PERIOD | sys::PERF_SAMPLE_READ) as u64;

/// An event of this code so many times a second.
fn at_frequency(code: u64, frequency: u64) -> Attr {
    Attr::raw(code).sampling(frequency, FIELDS).freq(true)
}

/// Samples per second, by the median of the times between `samples`: the clock goes on
/// while the CPU does not, when it is another one's turn in an emulator.
fn rate(samples: &[Sample]) -> f64 {
    let mut times: Vec<u64> = samples
        .windows(2)
        .map(|pair| pair[1].time - pair[0].time)
        .collect();
    times.sort_unstable();
    match times.get(times.len() / 2) {
        Some(&median) => SECOND as f64 / median as f64,
        None => 0.0,
    }
}

/// The samples of some time of work.
fn work_for(recorder: &mut Recorder, time: u64) -> io::Result<Vec<Sample>> {
    recorder.samples(|| {
        work::run_for(time);
    })
}

/// Each period ends where its sample says.
fn periods_add_up(samples: &[Sample]) -> Outcome {
    let mut due = 0;
    for sample in samples {
        due += sample.period;
        let count = sample.read.values[0].value;
        expect_within("count at the end of a period", count, due..due + 4000)?;
    }
    Ok(())
}

/// Samples come about so many times a second.
fn expect_rate(what: &str, samples: &[Sample], frequency: u64) -> Outcome {
    let rate = rate(settled(samples));
    check!(
        (0.7..1.3).contains(&(rate / frequency as f64)),
        "{what} at {frequency} Hz: {} samples, {rate:.0} Hz",
        samples.len()
    );
    Ok(())
}

/// The second half of what is sampled, as the period has to be found first.
fn settled(samples: &[Sample]) -> &[Sample] {
    &samples[samples.len() / 2..]
}

fn frequencies() -> Outcome {
    machine::needs_pace()?;
    for code in [INSTRUCTIONS, CYCLES, RUN_INSTRUCTIONS, RUN_CYCLES] {
        for frequency in [100, 1000, 4000, 10_000] {
            let mut recorder = Recorder::open(at_frequency(code, frequency), PAGES)?;
            // Twenty ticks at least, and forty samples.
            let time = (SECOND * 40 / frequency).max(SECOND / 12);
            let samples = work_for(&mut recorder, time)?;
            let periods = settled(&samples).iter().map(|sample| sample.period);
            println!(
                "{code:#x} at {frequency} Hz: {} samples, in the end {:.0} Hz, periods {:?} to {:?}",
                samples.len(),
                rate(settled(&samples)),
                periods.clone().min(),
                periods.max()
            );
            // Whatever the periods were, each has its sample, and no event is counted twice.
            periods_add_up(&samples)?;
            expect_rate(&format!("{code:#x}"), &samples, frequency)?;
        }
    }
    Ok(())
}

/// All `samples` stand for `period`, and there are as many as make up one of `counts`, but for
/// one: a period may have begun before the count, and the last one is open.
fn samples_of(period: u64, samples: &[Sample], counts: RangeInclusive<u64>) -> Outcome {
    for sample in samples {
        check!(sample.period == period, "{} of {period}", sample.period);
    }
    let taken = samples.len() as u64;
    let due = (counts.start() / period).saturating_sub(1)..=counts.end() / period + 1;
    check!(
        due.contains(&taken),
        "period {period}: {taken} samples, {due:?} due"
    );
    Ok(())
}

/// Samples of instructions on PMC2 at this period.
fn at_period(period: u64) -> io::Result<Recorder> {
    let attr = Attr::raw(on_pmc(2, INSTRUCTIONS)).sampling(period, FIELDS);
    Recorder::open(attr, PAGES)
}

/// Works under a running event of a period that has just been set, when it had counted `before`
/// or more.
fn work_at(recorder: &mut Recorder, before: u64, period: u64, instructions: u64) -> Outcome {
    // System calls count too, on a debug kernel for many periods: what they do beside this work may
    // be in the samples or not.
    let start = recorder.event.read()?.value;
    work::run(instructions);
    let end = recorder.event.read()?.value;
    let samples = recorder.take()?;
    let after = recorder.event.read()?.value;
    samples_of(period, &samples, end - start..=after - before)?;
    // A kernel that checks itself misses more while it takes a sample, under either driver.
    let least = instructions * if machine::is_debug_kernel() { 7 } else { 9 } / 10;
    check!(end - start >= least, "counted {start} to {end}");
    Ok(())
}

/// The first sample after the call stands for the new period, and comes when that is
/// over, of an event that runs and of one that is disabled.
fn new_period_begins_anew() -> Outcome {
    const LONG: u64 = 1 << 33;
    let period = machine::period(100_003);
    let mut recorder = at_period(LONG)?;
    for runs in [true, false, true, false] {
        recorder.event.disable()?;
        recorder.event.set_period(LONG)?;
        if runs {
            recorder.event.enable()?;
        }
        recorder.take()?;
        let before = recorder.event.read()?.value;
        recorder.event.set_period(period)?;
        recorder.event.enable()?;
        println!("runs: {runs}");
        work_at(&mut recorder, before, period, 10 * period)?;
    }
    Ok(())
}

/// How often the event was stopped, and the most samples in one go. While it is
/// stopped there is the sample of the interrupt that was one too many, no other.
fn throttled(records: &[Record]) -> Result<(u64, u64), Failure> {
    let (mut stops, mut goes, mut samples, mut most) = (0, 0, 0, 0);
    for record in records {
        match record.kind {
            sys::PERF_RECORD_THROTTLE => {
                check!(stops == goes, "throttled while it was");
                stops += 1;
                samples = 0;
            }
            sys::PERF_RECORD_UNTHROTTLE => {
                check!(stops == goes + 1, "unthrottled while it was not");
                goes += 1;
                samples = 0;
            }
            sys::PERF_RECORD_SAMPLE => {
                samples += 1;
                most = most.max(samples);
                check!(stops == goes || samples == 1, "samples while throttled");
            }
            kind => ktap::fail(format!("record {kind}"))?,
        }
    }
    check!(goes + 1 >= stops, "{stops} stops, {goes} goes");
    Ok((stops, most))
}

/// Runs `test` with a highest rate that events of [`too_short`] exceed.
fn at_low_rate(test: impl FnOnce(u64) -> Outcome) -> Outcome {
    let before = machine::sample_rate()?;
    let most = SECOND / (4 * too_short());
    machine::set_sample_rate(most)?;
    let outcome = test(most);
    machine::set_sample_rate(before)?;
    outcome
}

/// A period that ends at least four times as often as [`at_low_rate`] allows, if not
/// slower than an instruction in a nanosecond.
///
/// The kernel's work for a sample is less: its interrupt, and that which wakes the
/// reader. Where CPUs of an emulator take turns, such an interrupt may end a turn, and
/// the next one comes with a new tick, in which samples are allowed again. With a
/// sample due after each interrupt a CPU would get nothing else done.
fn too_short() -> u64 {
    machine::period(12_011)
}

/// Too many interrupts: a stop, no sample until the next tick, then more samples.
fn throttled_until_the_tick() -> Outcome {
    machine::needs_pace()?;
    cpu::pin_to(0)?;
    at_low_rate(stopped_for_the_rest_of_a_tick)
}

fn stopped_for_the_rest_of_a_tick(most: u64) -> Outcome {
    for code in [on_pmc(1, INSTRUCTIONS), on_pmc(4, CYCLES), RUN_INSTRUCTIONS] {
        for raw in TASK_AND_CPU {
            let stopped = || {
                let attr = raw(code).sampling(too_short(), FIELDS);
                let mut recorder = Recorder::open(attr, PAGES)?;
                let plain = raw(on_pmc(2, INSTRUCTIONS)).open()?;
                plain.enable()?;
                let mut done = 0;
                let records = recorder.records(|| done = work::run_for(SECOND / 20))?;
                plain.disable()?;
                let (stops, longest) = throttled(&records)?;
                let samples = Sample::all(&recorder.attr, &records)?;
                println!(
                    "{code:#x}: {} samples, stopped {stops} times, at most {longest} in one go",
                    samples.len()
                );
                periods_add_up(&samples)?;
                // What is not throttled goes on.
                let counts = (plain.read()?.value, recorder.event.read()?.value);
                check!(
                    counts.0 >= done && counts.1 < counts.0,
                    "{done} done, {counts:?} counted"
                );
                Ok((stops, longest))
            };
            // Ticks of 10 ms at most. (A switch to another task and back lets the
            // event go on, too.)
            let good = |&(stops, longest): &(_, _)| stops >= 5 && longest <= most / 100;
            let result = first_good(stopped, good)?;
            check!(
                good(&result),
                "stopped {} times, {} samples in one go",
                result.0,
                result.1
            );
        }
    }
    Ok(())
}

/// A group is stopped and goes on as a whole. (Under the kernel's built-in driver
/// those of its events that do not sample go on counting.)
fn groups_are_throttled_as_a_whole() -> Outcome {
    machine::needs_pace()?;
    at_low_rate(|_| {
        let grouped = |pmc| Attr::raw(on_pmc(pmc, INSTRUCTIONS)).grouped();
        let mut recorder = Recorder::open(grouped(1).sampling(too_short(), FIELDS), PAGES)?;
        let _member = grouped(3).open_with(&recorder.event)?;
        let records = recorder.records(|| {
            work::run_for(SECOND / 20);
        })?;
        let (stops, _) = throttled(&records)?;
        check!(stops >= 5, "throttled {stops} times");
        let group = recorder.event.read_group()?;
        let [(leader, _), (member, _)] = group.values[..] else {
            return ktap::fail(format!("{group:?}"));
        };
        check!(
            leader.abs_diff(member) * 20 < leader,
            "{leader} and {member} counted, throttled {stops} times"
        );
        Ok(())
    })
}

ktap::main! {
    first: machine::keep_sample_rate;
    frequencies, new_period_begins_anew,
    throttled_until_the_tick, groups_are_throttled_as_a_whole,
}

// SPDX-License-Identifier: GPL-2.0
//! The rate of samples: at a frequency, which perf reaches by changes of the period; at a new
//! period; and at the kernel's limit, above which it stops an event until the next tick.

use std::io;
use std::ops::RangeInclusive;

use pmu_selftests::TASK_AND_CPU;
use pmu_selftests::first_good;
use pmu_selftests::prelude::*;

const PAGES: usize = 32;
const SECOND: u64 = 1_000_000_000;

const FIELDS: u64 =
    (sys::PERF_SAMPLE_TIME | sys::PERF_SAMPLE_PERIOD | sys::PERF_SAMPLE_READ) as u64;

/// Returns an event that takes `frequency` samples per second.
fn at_frequency(code: u64, frequency: u64) -> Attr {
    Attr::raw(code).sampling(frequency, FIELDS).freq(true)
}

/// Returns the samples per second, from the median of the times between `samples`. (In an emulator
/// the clock goes on while another CPU has its turn.)
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

/// Returns the samples of work that takes `time`.
fn work_for(recorder: &mut Recorder, time: u64) -> io::Result<Vec<Sample>> {
    recorder.samples(|| {
        work::run_for(time);
    })
}

/// Checks that each period ends at the count in its sample.
fn periods_add_up(samples: &[Sample]) -> Outcome {
    let mut due = 0;
    for sample in samples {
        due += sample.period;
        let count = sample.read.values[0].value;
        expect_within("count at the end of a period", count, due..due + 4000)?;
    }
    Ok(())
}

/// Checks that there are about `frequency` samples per second.
fn expect_rate(what: &str, samples: &[Sample], frequency: u64) -> Outcome {
    let rate = rate(settled(samples));
    check!(
        (0.7..1.3).contains(&(rate / frequency as f64)),
        "{what} at {frequency} Hz: {} samples, {rate:.0} Hz",
        samples.len()
    );
    Ok(())
}

/// Returns the second half of the samples. In the first half, perf core still searches for the
/// period.
fn settled(samples: &[Sample]) -> &[Sample] {
    &samples[samples.len() / 2..]
}

fn frequencies() -> Outcome {
    machine::needs_pace()?;
    for code in [INSTRUCTIONS, CYCLES, RUN_INSTRUCTIONS, RUN_CYCLES] {
        for frequency in [100, 1000, 4000, 10_000] {
            let mut recorder = Recorder::open(at_frequency(code, frequency), PAGES)?;
            // The time is at least twenty ticks and forty samples.
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
            // Whatever the periods are, each one has its sample, and no event is counted twice.
            periods_add_up(&samples)?;
            expect_rate(&format!("{code:#x}"), &samples, frequency)?;
        }
    }
    Ok(())
}

/// Checks that all `samples` have the period `period`, and that their number fits to one of
/// `counts`. It may differ by one: a period may have begun before the count, and the last one has
/// not ended.
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

/// Opens an event that samples instructions on PMC2 at this period.
fn at_period(period: u64) -> io::Result<Recorder> {
    let attr = Attr::raw(on_pmc(2, INSTRUCTIONS)).sampling(period, FIELDS);
    Recorder::open(attr, PAGES)
}

/// Works under a running event whose period has just been set, and checks its samples. The event's
/// count was at least `before` when the period was set.
fn work_at(recorder: &mut Recorder, before: u64, period: u64, instructions: u64) -> Outcome {
    // System calls count, too, on a debug kernel for many periods. The samples may or may not
    // include the calls around this work.
    let start = recorder.event.read()?.value;
    work::run(instructions);
    let end = recorder.event.read()?.value;
    let samples = recorder.take()?;
    let after = recorder.event.read()?.value;
    samples_of(period, &samples, end - start..=after - before)?;
    // A debug kernel misses more instructions while it takes a sample, under either driver.
    let least = instructions * if machine::is_debug_kernel() { 7 } else { 9 } / 10;
    check!(end - start >= least, "counted {start} to {end}");
    Ok(())
}

/// Tests that the first sample after PERF_EVENT_IOC_PERIOD is for the new period, and comes at the
/// end of that period, whether the event runs or is disabled during the call.
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

/// Returns how often the event was stopped, and the largest number of samples between two stops.
/// While the event is stopped, there is only the sample of the interrupt that exceeded the limit.
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

/// Runs `test` with a limit on the sample rate that events of [`too_short`] exceed.
fn at_low_rate(test: impl FnOnce(u64) -> Outcome) -> Outcome {
    let before = machine::sample_rate()?;
    let most = SECOND / (4 * too_short());
    machine::set_sample_rate(most)?;
    let outcome = test(most);
    machine::set_sample_rate(before)?;
    outcome
}

/// Returns a period that ends at least four times as often as [`at_low_rate`] allows, if an
/// instruction takes at most a nanosecond.
///
/// The kernel's work for a sample is shorter than this period: the PM interrupt, and the one that
/// wakes the reader. In an emulator whose CPUs take turns, the second one may end a turn. The CPU's
/// next turn begins with a new tick, in which samples are allowed again. If a sample were due after
/// each interrupt, the CPU would make no progress.
fn too_short() -> u64 {
    machine::period(12_011)
}

/// Tests an event with too many interrupts: it stops, gives no sample until the next tick, and then
/// more samples.
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
                // An event that is not throttled continues to count.
                let counts = (plain.read()?.value, recorder.event.read()?.value);
                check!(
                    counts.0 >= done && counts.1 < counts.0,
                    "{done} done, {counts:?} counted"
                );
                Ok((stops, longest))
            };
            // The tick is at most 10 ms. (A switch to another task and back also starts the event
            // again.)
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

/// Tests that a group is stopped and started as a whole. (Under the kernel's built-in driver, its
/// events that do not sample continue to count.)
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

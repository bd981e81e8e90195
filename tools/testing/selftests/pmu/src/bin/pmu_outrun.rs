// SPDX-License-Identifier: GPL-2.0
//! PM interrupts that outrun the kernel: a program under events that overflow all the
//! time keeps a good part of its CPU, whatever makes perf core forget that it has
//! throttled them. What is held back is told, and ends with the storm.

use std::thread::sleep;
use std::time::Duration;

use pmu_selftests::prelude::*;

/// Instructions of the program between two things that it does.
const ROUND: u64 = 20_000;
/// How long the driver may take to notice, and how long to watch then (ns).
const NOTICED: u64 = 250_000_000;
const WATCHED: u64 = 400_000_000;
/// After so long without PM interrupts nothing is held back.
const FORGOTTEN: Duration = Duration::from_millis(300);
/// The part of its work that a program does at least, in per cent: 51 to 69 with the
/// driver, 2 to 3 with the built-in one.
const LEAST: f64 = 40.0;

const FIELDS: u64 = (sys::PERF_SAMPLE_PERIOD | sys::PERF_SAMPLE_READ) as u64;

/// An event whose next period ends before its PM interrupt has returned.
fn stormy() -> Attr {
    Attr::raw(INSTRUCTIONS).sampling(1, FIELDS)
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

/// Each sample says for how many events it stands, and those that it stands for beyond
/// the period count as lost.
fn what_is_held_back_is_told() -> Outcome {
    let _other = who_yields()?;
    let format = sys::PERF_FORMAT_LOST;
    let mut recorder = Recorder::open(stormy().read_format(format.into()), 128)?;
    let mut done = Ok(0.0);
    let records = recorder.records(|| {
        done = speed(NOTICED, &mut || {
            yield_cpu();
            Ok(())
        });
    })?;
    done?;
    let lost_records = records
        .iter()
        .any(|record| record.kind == sys::PERF_RECORD_LOST);
    check!(!lost_records, "the buffer is too small");
    let samples = Sample::all(&recorder.attr, &records)?;
    let (mut due, mut longest) = (0, 0);
    for sample in &samples {
        due += sample.period;
        longest = longest.max(sample.period);
        let count = sample.read.values[0].value;
        let late = machine::kernel_share(4000);
        expect_within("count at the end of a period", count, due..due + late)?;
    }
    let [count, lost] = recorder.event.read_words()?[..] else {
        return ktap::fail("read() does not give two words");
    };
    println!(
        "{} samples, {lost} lost, of {count}; the longest period {longest}",
        samples.len()
    );
    check!(
        longest > 1 << 12 && lost > longest / 2 && lost < count,
        "{lost} lost of {count}, the longest period is {longest}"
    );
    Ok(())
}

/// Once PM interrupts have taken no more than their share for a while, an event has
/// each of its periods.
fn it_ends_with_the_storm() -> Outcome {
    machine::needs_pace()?;
    let storm = who_yields()?;
    let event = stormy().enabled().open()?;
    speed(NOTICED, &mut || {
        yield_cpu();
        Ok(())
    })?;
    event.close();
    drop(storm);
    sleep(FORGOTTEN);
    // Some ten times as long as the handler takes: not a rare event, but no storm either.
    let short = machine::period(15_013);
    let attr = Attr::raw(INSTRUCTIONS).sampling(short, FIELDS);
    let samples = Recorder::open(attr, 16)?.samples(|| {
        work::run(100 * short);
    })?;
    check!(samples.len() >= 90, "{} samples", samples.len());
    for sample in samples {
        check!(
            sample.period < 4 * short,
            "a sample stands for {}",
            sample.period
        );
    }
    Ok(())
}

/// An event that does not overflow all the time has each of its periods beside others
/// that do.
fn a_rare_event_is_left_alone() -> Outcome {
    machine::needs_pace()?;
    const RARE: u64 = 60_013;
    cpu::pin_to(0)?;
    let mut other = Peer::spawn(|parent| {
        parent.listen()?;
        for _ in 0..40 {
            work::run(RARE / 2);
            sleep(Duration::from_millis(10));
        }
        parent.tell()?;
        parent.listen()
    })?;
    let attr = Attr::raw(INSTRUCTIONS)
        .sampling(RARE, FIELDS)
        .pid(other.pid());
    let mut recorder = Recorder::open(attr, 16)?;
    let storm = stormy()
        .read_format(sys::PERF_FORMAT_LOST.into())
        .enabled()
        .open()?;
    let mut again = || Ok(storm.set_period(1)?);
    speed(NOTICED, &mut again)?;
    let mut done = Ok(0.0);
    let samples = recorder.samples(|| {
        done = other.tell().and_then(|()| speed(WATCHED, &mut again));
    })?;
    done?;
    let [_, lost] = storm.read_words()?[..] else {
        return ktap::fail("read() does not give two words");
    };
    println!("{} samples, {lost} of the other event lost", samples.len());
    check!(
        lost > 1000 && samples.len() >= 8,
        "{} samples, {lost} of the other event lost",
        samples.len()
    );
    for sample in samples {
        check!(
            sample.period < 4 * RARE,
            "a sample stands for {}",
            sample.period
        );
    }
    other.listen()?;
    other.tell()?;
    other.join()
}

ktap::main! {
    first: needs_its_own_turns;
    a_program_that_yields, a_program_that_sets_the_period, a_program_that_opens_events,
    what_is_held_back_is_told, it_ends_with_the_storm, a_rare_event_is_left_alone,
}

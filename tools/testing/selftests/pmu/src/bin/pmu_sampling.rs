// SPDX-License-Identifier: GPL-2.0
//! Sampling with a fixed period: as many samples as counts make, where the
//! program was, through the ring buffer and by signals.

use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use pmu_selftests::TASK_AND_CPU;
use pmu_selftests::check_status;
use pmu_selftests::fields::sample::*;
use pmu_selftests::prelude::*;

const PERIOD: u64 = 100_000;
const WORK: u64 = 50_000_000;

/// Records of `body` under an event, after its count.
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

/// Two samples further apart than a PMC reaches in one go.
fn period_past_2_31() -> Outcome {
    let period = 3 << 30;
    let (count, records) = records(Attr::instructions().sampling(period, IP), || {
        work::run(2 * period + period / 2);
    })?;
    let taken = samples(&records);
    check!(
        taken == 2,
        "period {period}, {count} counted: {taken} samples"
    );
    Ok(())
}

static SIGNALS: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_signal(_signal: i32) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

// Of <linux/fcntl.h>; libc has them for a part of its targets only.
const F_SETSIG: i32 = 10;
const F_SETOWN_EX: i32 = 15;
const F_OWNER_TID: i32 = 0;

/// Has overflows send `signal` to the calling task.
fn signal_on_overflow(event: &Event, signal: i32) -> io::Result<()> {
    // struct f_owner_ex
    // SAFETY: takes nothing.
    let owner = [F_OWNER_TID, unsafe { libc::gettid() }];
    let fd = event.as_raw_fd();
    // SAFETY: fcntl commands without pointers, but for F_SETOWN_EX, whose argument
    // outlives the call.
    unsafe {
        check_status(libc::fcntl(fd, libc::F_SETFL, libc::O_ASYNC))?;
        check_status(libc::fcntl(fd, F_SETSIG, signal))?;
        check_status(libc::fcntl(fd, F_SETOWN_EX, &raw const owner))
    }
}

/// A real-time signal, so that none is merged with another.
fn signalling(period: u64) -> io::Result<Event> {
    let event = Attr::instructions().sampling(period, IP).open()?;
    let signal = libc::SIGRTMIN();
    let handler = on_signal as extern "C" fn(i32) as *const () as libc::sighandler_t;
    // SAFETY: the handler only adds to an atomic.
    unsafe { libc::signal(signal, handler) };
    signal_on_overflow(&event, signal)?;
    Ok(event)
}

fn overflows_signal() -> Outcome {
    machine::needs_pace()?;
    let event = signalling(1_000_000)?;
    let _ring = Ring::map(&event, 64)?;
    let count = event.count(do_work)?;
    let (signals, due) = (SIGNALS.load(Ordering::Relaxed), count / 1_000_000);
    check!(
        signals <= due && signals + 5 >= due,
        "{count} counted: {signals} signals"
    );
    Ok(())
}

fn refresh_stops_by_itself() -> Outcome {
    machine::needs_pace()?;
    let event = signalling(1_000_000)?;
    let mut ring = Ring::map(&event, 64)?;
    event.refresh(3)?;
    do_work();
    let count = event.read()?.value;
    // The last signal may still be on its way.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let taken = samples(&ring.take());
    check!(taken == 3, "three were asked for, {taken} came");
    check!(SIGNALS.load(Ordering::Relaxed) == 3, "{SIGNALS:?} signals");
    expect_within("until the last", count, 3_000_000..3_100_000)
}

/// The longest period that a PMC reaches in one go, and the shortest that it does not.
fn period_of_2_31() -> Outcome {
    for period in [(1 << 31) - 1, 1 << 31] {
        let (count, records) = records(Attr::instructions().sampling(period, IP), || {
            work::run(period + period / 8);
        })?;
        let taken = samples(&records);
        check!(
            taken == 1,
            "period {period}, {count} counted: {taken} samples"
        );
    }
    Ok(())
}

/// More interrupts than the kernel allows: it stops the event until the next
/// tick, and says so, but all goes on.
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
    as_many_as_periods, addresses_tell_functions_apart, period_past_2_31, period_of_2_31,
    overflows_signal, refresh_stops_by_itself,
    tiny_period = tiny_period(100),
    period_of_one = tiny_period(1),
}

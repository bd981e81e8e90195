// SPDX-License-Identifier: GPL-2.0
//! Sampling with a fixed period: as many samples as counts make, where the
//! program was, through the ring buffer and by signals.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use perf_event::sys;

use ktap::Outcome;
use ktap::check;
use perf_event::Attr;
use perf_event::Event;
use pmu_selftests::check_status;
use pmu_selftests::codes::INSTRUCTIONS;
use pmu_selftests::codes::on_pmc;
use pmu_selftests::fields::sample::IP;
use pmu_selftests::machine;
use pmu_selftests::ring::Record;
use pmu_selftests::ring::Ring;
use pmu_selftests::work;

const PERIOD: u64 = 100_000;
const WORK: u64 = 50_000_000;

/// Runs `body` under the event and returns the count and the records.
fn sample(attr: &Attr, body: impl FnOnce()) -> io::Result<(u64, Vec<Record>)> {
    let event = attr.open()?;
    let mut ring = Ring::map(&event, 64)?;
    let count = event.count(body)?;
    Ok((count, ring.take()))
}

/// The first word of each sample.
fn samples(records: &[Record]) -> Vec<u64> {
    let samples = records.iter().filter(|record| record.is_sample());
    samples
        .filter_map(|record| record.words.first().copied())
        .collect()
}

fn as_many_as_periods() -> Outcome {
    machine::needs_pace()?;
    for code in [
        INSTRUCTIONS,
        on_pmc(1, INSTRUCTIONS),
        on_pmc(4, INSTRUCTIONS),
    ] {
        for period in [machine::period(30_011), PERIOD, 1_000_000] {
            let (count, records) = sample(&Attr::raw(code).sampling(period, IP), || {
                work::run(WORK);
            })?;
            check!(!records.iter().any(Record::is_loss), "records were lost");
            let (taken, due) = (samples(&records).len() as u64, count / period);
            // A sample is late by the way into the interrupt, some thousand
            // instructions, which do not go towards the next period's count.
            let fewest = WORK / (period + 4000);
            check!(
                taken <= due && taken >= fewest,
                "{code:#x}: period {period}, {count} counted: {taken} samples, {due} due"
            );
        }
    }
    Ok(())
}

fn addresses_are_in_the_work() -> Outcome {
    let (_, records) = sample(&Attr::instructions().sampling(PERIOD, IP), || {
        work::run(WORK);
    })?;
    let addresses = samples(&records);
    let inside = addresses
        .iter()
        .filter(|ip| work::code().contains(ip))
        .count();
    check!(
        addresses.len() > 100 && inside * 100 >= addresses.len() * 95,
        "{inside} of {} samples in {:x?}",
        addresses.len(),
        work::code()
    );
    Ok(())
}

/// The sample's header says that user code was interrupted.
fn user_mode_is_told() -> Outcome {
    let (_, records) = sample(&Attr::instructions().sampling(PERIOD, IP), || {
        work::run(WORK);
    })?;
    let of_user = records.iter().filter(|record| {
        let mode = u32::from(record.misc) & sys::PERF_RECORD_MISC_CPUMODE_MASK;
        record.is_sample() && mode == sys::PERF_RECORD_MISC_USER
    });
    let (of_user, all) = (of_user.count(), samples(&records).len());
    check!(
        of_user * 100 >= all * 95,
        "{of_user} of {all} samples are of user mode"
    );
    Ok(())
}

fn addresses_tell_functions_apart() -> Outcome {
    let (_, records) = sample(&Attr::instructions().sampling(PERIOD, IP), || {
        for _ in 0..50 {
            work::run(WORK / 50);
            work::run_elsewhere(3 * WORK / 50);
        }
    })?;
    let addresses = samples(&records);
    let here = addresses
        .iter()
        .filter(|ip| work::code().contains(ip))
        .count();
    let there = addresses
        .iter()
        .filter(|ip| work::code_elsewhere().contains(ip))
        .count();
    let share = there as f64 / (here + there) as f64;
    check!(
        here > 100 && (share - 0.75).abs() < 0.05,
        "{here} samples in one quarter, {there} in three quarters"
    );
    Ok(())
}

fn cycles_sample_too() -> Outcome {
    let (count, records) = sample(&Attr::cycles().sampling(PERIOD, IP), || {
        // By the clock: an emulator's cycles may pass faster or slower.
        work::run_for(50_000_000);
    })?;
    let (taken, due) = (samples(&records).len() as u64, count / PERIOD);
    check!(
        taken > 10 && taken <= due,
        "{count} counted: {taken} samples, {due} due"
    );
    Ok(())
}

fn sample_fields() -> Outcome {
    let what = IP
        | u64::from(sys::PERF_SAMPLE_TID | sys::PERF_SAMPLE_TIME)
        | u64::from(sys::PERF_SAMPLE_CPU | sys::PERF_SAMPLE_PERIOD);
    let (_, records) = sample(&Attr::instructions().sampling(PERIOD, what), || {
        work::run(WORK / 10);
    })?;
    let mut last_time = 0;
    let mut seen = 0;
    for record in records.iter().filter(|record| record.is_sample()) {
        let [_ip, pid_tid, time, cpu, period] = record.words[..] else {
            return ktap::fail(format!("{} words", record.words.len()));
        };
        check!(
            pid_tid as u32 == std::process::id(),
            "pid {}",
            pid_tid as u32
        );
        check!(time > last_time, "time {time} after {last_time}");
        check!(
            machine::online_cpus()?.contains(&(cpu as u32 as usize)),
            "CPU {cpu}"
        );
        check!(period == PERIOD, "period {period}");
        last_time = time;
        seen += 1;
    }
    check!(seen > 10, "{seen} samples");
    Ok(())
}

fn several_at_once() -> Outcome {
    machine::needs_pace()?;
    let mut open = Vec::new();
    for (pmc, period) in [
        (1, PERIOD),
        (2, 2 * PERIOD),
        (3, 4 * PERIOD),
        (4, 8 * PERIOD),
    ] {
        let event = Attr::raw(on_pmc(pmc, INSTRUCTIONS))
            .sampling(period, IP)
            .open()?;
        let ring = Ring::map(&event, 64)?;
        open.push((event, ring, period));
    }
    for (event, ..) in &open {
        event.enable()?;
    }
    work::run(WORK);
    for (event, ..) in &open {
        event.disable()?;
    }
    for (event, ring, period) in &mut open {
        let taken = samples(&ring.take()).len() as u64;
        let count = event.read()?.value;
        check!(
            taken <= count / *period,
            "period {period}: {taken} of {count}"
        );
        check!(
            taken >= WORK / (*period + 20_000),
            "period {period}: {taken} of {count}"
        );
    }
    Ok(())
}

/// Two samples further apart than a PMC reaches in one go.
fn period_past_2_31() -> Outcome {
    let period = 3 << 30;
    let (count, records) = sample(&Attr::instructions().sampling(period, IP), || {
        work::run(2 * period + period / 2);
    })?;
    let taken = samples(&records).len();
    check!(
        taken == 2,
        "period {period}, {count} counted: {taken} samples"
    );
    Ok(())
}

fn new_period_by_ioctl() -> Outcome {
    machine::needs_pace()?;
    let event = Attr::instructions().sampling(1 << 40, IP).open()?;
    let mut ring = Ring::map(&event, 64)?;
    event.enable()?;
    work::run(WORK);
    check!(
        samples(&ring.take()).is_empty(),
        "samples although the period is 2^40"
    );
    event.set_period(PERIOD)?;
    work::run(WORK);
    event.disable()?;
    let taken = samples(&ring.take()).len() as u64;
    check!(
        taken >= WORK / (PERIOD + 4000),
        "{taken} samples at the new period"
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
    let count = event.count(|| {
        work::run(WORK);
    })?;
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
    work::run(WORK);
    let count = event.read()?.value;
    // The last signal may still be on its way.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let taken = samples(&ring.take()).len();
    check!(taken == 3, "three were asked for, {taken} came");
    check!(SIGNALS.load(Ordering::Relaxed) == 3, "{SIGNALS:?} signals");
    check!(
        (3_000_000..3_100_000).contains(&count),
        "{count} counted, then no more"
    );
    Ok(())
}

/// More interrupts than the kernel allows: it stops the event until the next
/// tick, and says so, but all goes on.
fn tiny_period() -> Outcome {
    let event = Attr::instructions().sampling(100, IP).open()?;
    let mut ring = Ring::map(&event, 64)?;
    event.enable()?;
    let other = Attr::raw(on_pmc(4, INSTRUCTIONS)).open()?;
    let mut done = 0;
    let count = other.count(|| done = work::run(WORK))?;
    check!(
        count >= done,
        "{done} done, {count} counted by a plain event"
    );
    let records = ring.take();
    let throttled = records.iter().filter(|record| record.is_loss()).count();
    check!(
        samples(&records).len() > 100,
        "{} samples",
        samples(&records).len()
    );
    check!(throttled > 1, "throttled {throttled} times");
    Ok(())
}

fn of_a_cpu() -> Outcome {
    machine::needs_pace()?;
    machine::pin_to(0)?;
    let what = IP | u64::from(sys::PERF_SAMPLE_TID);
    let event = Attr::instructions()
        .sampling(PERIOD, what)
        .on_cpu(0)
        .open()?;
    let mut ring = Ring::map(&event, 64)?;
    event.count(|| {
        work::run(WORK);
    })?;
    let records = ring.take();
    let ours = records
        .iter()
        .filter(|record| record.is_sample() && record.words[1] as u32 == std::process::id())
        .count() as u64;
    check!(
        ours >= WORK / (PERIOD + 4000),
        "{ours} samples of this task"
    );
    Ok(())
}

/// By frequency: the kernel finds the period.
fn by_frequency() -> Outcome {
    let attr = Attr::cycles().sampling(1000, IP).freq(true);
    let event = attr.open()?;
    let mut ring = Ring::map(&event, 64)?;
    event.enable()?;
    work::run_for(500_000_000);
    event.disable()?;
    let taken = samples(&ring.take()).len();
    check!(
        (250..=1000).contains(&taken),
        "1000 Hz for 0.5 s: {taken} samples"
    );
    Ok(())
}

fn main() {
    if let Err(error) = machine::keep_sample_rate() {
        eprintln!("perf_cpu_time_max_percent cannot be set: {error}");
    }
    ktap::run(&[
        ("as_many_as_periods", as_many_as_periods),
        ("addresses_are_in_the_work", addresses_are_in_the_work),
        ("user_mode_is_told", user_mode_is_told),
        (
            "addresses_tell_functions_apart",
            addresses_tell_functions_apart,
        ),
        ("cycles_sample_too", cycles_sample_too),
        ("sample_fields", sample_fields),
        ("several_at_once", several_at_once),
        ("period_past_2_31", period_past_2_31),
        ("new_period_by_ioctl", new_period_by_ioctl),
        ("overflows_signal", overflows_signal),
        ("refresh_stops_by_itself", refresh_stops_by_itself),
        ("tiny_period", tiny_period),
        ("of_a_cpu", of_a_cpu),
        ("by_frequency", by_frequency),
    ])
}

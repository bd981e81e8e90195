// SPDX-License-Identifier: GPL-2.0
//! Parts that the selftests of counting and sampling share: event codes, work of a known number of
//! instructions, facts about the machine, the ring buffer and its samples, and the intended
//! differences between the module and the built-in driver.
//!
//! Each program in `src/bin/` tests one behaviour. They pass under any correct driver of the core
//! PMU; `run_pmu_selftests` runs them all.

pub mod branch;
pub mod branching;
pub mod codes;
pub mod fields;
pub mod kernel_work;
pub mod known;
pub mod known_samples;
pub mod machine;
pub mod prelude;
pub mod random;
pub mod regs;
pub mod ring;
pub mod sample;
pub mod shared;
pub mod stricter;
pub mod work;

use std::fmt::Debug;
use std::io;
use std::ops::Range;

use ktap::Failure;
use ktap::Outcome;
use ktap::check;
use perf_event::Attr;
use perf_event::Event;

/// Returns a raw event that counts everything that runs on CPU 0.
pub fn of_cpu_0(code: u64) -> Attr {
    Attr::raw(code).on_cpu(0)
}

/// The two kinds of event that perf core schedules: of a task and of a CPU.
pub const TASK_AND_CPU: [fn(u64) -> Attr; 2] = [Attr::raw, of_cpu_0];

/// Returns the errno of a failed call, or 0 for a successful one.
pub fn errno_of<T>(result: Result<T, impl Into<io::Error>>) -> i32 {
    match result {
        Ok(_) => 0,
        Err(error) => error.into().raw_os_error().unwrap_or(-1),
    }
}

/// Opens a group with the first event as its leader, until an event is refused. Returns the open
/// events and the last result.
pub fn open_until_refused(
    attrs: impl IntoIterator<Item = Attr>,
) -> (Vec<Event>, perf_event::Result<()>) {
    let mut group: Vec<Event> = Vec::new();
    for attr in attrs {
        let event = match group.first() {
            None => attr.open(),
            Some(leader) => attr.open_with(leader),
        };
        match event {
            Ok(event) => group.push(event),
            Err(error) => return (group, Err(error)),
        }
    }
    (group, Ok(()))
}

/// Opens a group with the first event as its leader.
pub fn open_group(attrs: impl IntoIterator<Item = Attr>) -> perf_event::Result<Vec<Event>> {
    let (group, end) = open_until_refused(attrs);
    end.map(|()| group)
}

/// Counts known work. Returns the count and the number of instructions done.
pub fn count_work(event: &Event, instructions: u64) -> perf_event::Result<(u64, u64)> {
    let mut done = 0;
    let count = event.count(|| done = work::run(instructions))?;
    Ok((count, done))
}

/// Returns the smallest of `tries` counts of `work`, or the first count that is at most `enough`.
/// Ticks and the work of other tasks only add to a count.
pub fn least_count(
    event: &Event,
    tries: usize,
    enough: u64,
    work: impl Fn(),
) -> perf_event::Result<u64> {
    let mut least = u64::MAX;
    for _ in 0..tries {
        least = least.min(event.count(&work)?);
        if least <= enough {
            break;
        }
    }
    Ok(least)
}

/// Returns the first of up to four results of `measure` that is `good`, or else the last one.
///
/// Use it for times measured on one CPU: an emulator that counts instructions runs one virtual CPU
/// at a time, and the clock of all CPUs goes on during each turn.
pub fn first_good<T>(
    mut measure: impl FnMut() -> Result<T, Failure>,
    good: impl Fn(&T) -> bool,
) -> Result<T, Failure> {
    for _ in 1..4 {
        let result = measure()?;
        if good(&result) {
            return Ok(result);
        }
    }
    measure()
}

/// Fails unless `count` is in `wanted`. The failure's text begins with `what`.
#[track_caller]
pub fn expect_within(what: impl Debug, count: u64, wanted: Range<u64>) -> Outcome {
    check!(
        wanted.contains(&count),
        "{what:?}: {count} is not in {wanted:?}"
    );
    Ok(())
}

/// Converts the status of a C library call to a result.
pub fn check_status(status: i32) -> io::Result<()> {
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

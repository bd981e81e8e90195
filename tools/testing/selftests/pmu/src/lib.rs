// SPDX-License-Identifier: GPL-2.0
//! What the selftests of regular counting share: event codes, work of a known number
//! of instructions, facts about the machine, the ring buffer and its samples, and
//! where the module is to differ from the built-in driver.
//!
//! Each program in `src/bin/` tests one behaviour. They pass under any correct
//! driver of the core PMU; `run_pmu_selftests` runs them all.

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

/// A raw event of everything that runs on CPU 0.
pub fn of_cpu_0(code: u64) -> Attr {
    Attr::raw(code).on_cpu(0)
}

/// The two kinds of event that perf core schedules: a task's and a CPU's.
pub const TASK_AND_CPU: [fn(u64) -> Attr; 2] = [Attr::raw, of_cpu_0];

/// The errno of a failed call, 0 of one that succeeded.
pub fn errno_of<T>(result: Result<T, impl Into<io::Error>>) -> i32 {
    match result {
        Ok(_) => 0,
        Err(error) => error.into().raw_os_error().unwrap_or(-1),
    }
}

/// Opens a group, the first one as its leader, up to the event that is refused: what
/// is open, and how that ended.
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

/// Opens a group, the first one as its leader.
pub fn open_group(attrs: impl IntoIterator<Item = Attr>) -> perf_event::Result<Vec<Event>> {
    let (group, end) = open_until_refused(attrs);
    end.map(|()| group)
}

/// Counts known work; returns the count and the number of instructions done.
pub fn count_work(event: &Event, instructions: u64) -> perf_event::Result<(u64, u64)> {
    let mut done = 0;
    let count = event.count(|| done = work::run(instructions))?;
    Ok((count, done))
}

/// The least of `tries` counts of `work`, or the first of them that is `enough` at
/// most: ticks and others' work only add to a count.
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

/// The first of four results of `measure` that is `good`, or the last of them.
///
/// For what the clock says of one CPU's work: of the virtual CPUs of an emulator that counts
/// instructions one executes at a time, and the clock is that of all.
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

/// Fails unless `count` is in `wanted`; `what` is for the failure's text.
#[track_caller]
pub fn expect_within(what: impl Debug, count: u64, wanted: Range<u64>) -> Outcome {
    check!(
        wanted.contains(&count),
        "{what:?}: {count} is not in {wanted:?}"
    );
    Ok(())
}

/// What a call of the C library says by its status, as a result.
pub fn check_status(status: i32) -> io::Result<()> {
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

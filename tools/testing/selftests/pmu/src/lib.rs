// SPDX-License-Identifier: GPL-2.0
//! What the selftests of regular counting share: event codes, work of a known number of instructions, facts about the machine,
//! child processes in step with the test, the ring buffer and its samples, and
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
pub mod process;
pub mod regs;
pub mod ring;
pub mod sample;
pub mod stricter;
pub mod work;

use std::io;

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

/// What a call of the C library says by its status, as a result.
pub fn check_status(status: i32) -> io::Result<()> {
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

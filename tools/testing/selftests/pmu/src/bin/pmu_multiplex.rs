// SPDX-License-Identifier: GPL-2.0
//! More events than counters: the events take turns, their times show how long each one counted,
//! and the scaled counts are right.

use perf_event::Count;
use pmu_selftests::prelude::*;
use pmu_selftests::{first_good, of_cpu_0};

/// Duration of the work. Rotation happens every 4 ms (perf_event_mux_interval_ms).
const NANOSECONDS: u64 = 400_000_000;

/// Returns the relative error that scaled counts may have. Where the speed of work varies, as in an
/// emulator on a busy host, the work while an event counts is not typical of the rest.
fn tolerance() -> f64 {
    if machine::instructions_make_time() {
        machine::kernel_share(5) as f64 / 1000.0
    } else {
        0.25
    }
}

/// Checks that scaled counts are right. `largest_error` measures them, and fails if anything else
/// is wrong.
fn expect_scaled(largest_error: impl Fn() -> Result<f64, Failure>) -> Outcome {
    let error = first_good(largest_error, |error| *error < tolerance())?;
    check!(
        error < tolerance(),
        "scaled counts are off by the share {error:.4}"
    );
    Ok(())
}

/// An event that has a counter to itself, with which events that take turns are compared.
///
/// The amount of work is not exact enough for that. Where freeze bits are ignored, events also
/// count the kernel's work in the task's time, which may be a fortieth of it.
struct Reference(Event);

impl Reference {
    fn start(raw: fn(u64) -> Attr) -> Result<Self, Failure> {
        let event = raw(RUN_INSTRUCTIONS).pinned(true).open()?;
        event.enable()?;
        Ok(Self(event))
    }

    fn stop(self, done: u64) -> Result<u64, Failure> {
        self.0.disable()?;
        let count = self.0.read()?;
        check!(count.enabled == count.running, "{count:?}");
        let wanted = done..done + machine::kernel_share(done / 10);
        expect_within("reference", count.value, wanted)?;
        Ok(count.value)
    }
}

/// Counts one long work with an event for each element of `pmcs`, all at once; 0 means any counter.
/// Returns the reference's count and those of the events.
fn count_on_pmcs(raw: fn(u64) -> Attr, pmcs: &[u64]) -> Result<(u64, Vec<Count>), Failure> {
    let open = |&pmc| raw(on_pmc(pmc, INSTRUCTIONS)).open();
    let events = pmcs
        .iter()
        .map(open)
        .collect::<perf_event::Result<Vec<_>>>()?;
    let reference = Reference::start(raw)?;
    for event in &events {
        event.enable()?;
    }
    let done = work::run_for(NANOSECONDS);
    for event in &events {
        event.disable()?;
    }
    let reference = reference.stop(done)?;
    let counts = events
        .iter()
        .map(Event::read)
        .collect::<perf_event::Result<_>>()?;
    Ok((reference, counts))
}

/// Checks that each event counts for a share of the time between `least` and `most`, and that its
/// scaled count is right.
fn take_turns(raw: fn(u64) -> Attr, pmcs: &[u64], least: f64, most: f64) -> Outcome {
    expect_scaled(|| {
        let (reference, counts) = count_on_pmcs(raw, pmcs)?;
        let mut largest_error = 0.0_f64;
        for count in &counts {
            let share = count.running as f64 / count.enabled as f64;
            check!(
                share > least && share < most,
                "share {share:.3}: {counts:?}"
            );
            let error = count.scaled() / reference as f64 - 1.0;
            largest_error = largest_error.max(error.abs());
        }
        Ok(largest_error)
    })
}

fn groups_rotate_whole() -> Outcome {
    let attrs = || (1..=4).map(|pmc| Attr::raw(on_pmc(pmc, INSTRUCTIONS)).grouped());
    expect_scaled(|| {
        let groups = [open_group(attrs())?, open_group(attrs())?];
        let reference = Reference::start(Attr::raw)?;
        for group in &groups {
            group[0].enable()?;
        }
        let done = work::run_for(NANOSECONDS);
        for group in &groups {
            group[0].disable()?;
        }
        let reference = reference.stop(done)?;
        let mut largest_error = 0.0_f64;
        for group in &groups {
            let group = group[0].read_group()?;
            let share = group.running as f64 / group.enabled as f64;
            check!(share > 0.4 && share < 0.6, "share {share:.3}: {group:?}");
            let first = group.values[0].0;
            for &(value, _) in &group.values {
                // The members of a group start and stop together, so they differ by a few
                // instructions a turn.
                check!(value.abs_diff(first) < 8 * 200, "{group:?}");
            }
            let error = first as f64 / share / reference as f64 - 1.0;
            largest_error = largest_error.max(error.abs());
        }
        Ok(largest_error)
    })
}

/// Tests that events of a CPU take turns, too.
fn cpu_events_rotate() -> Outcome {
    cpu::pin_to(0)?;
    take_turns(of_cpu_0, &[2, 2], 0.4, 0.6)
}

ktap::main! {
    two_on_one_counter = take_turns(Attr::raw, &[1, 1], 0.4, 0.6),
    three_on_one_counter = take_turns(Attr::raw, &[3, 3, 3], 0.23, 0.43),
    eight_on_four_counters = take_turns(Attr::raw, &[1, 2, 3, 4, 1, 2, 3, 4], 0.15, 0.85),
    a_dozen_on_any_counter = take_turns(Attr::raw, &[0; 12], 0.15, 0.85),
    groups_rotate_whole, cpu_events_rotate,
}

// SPDX-License-Identifier: GPL-2.0
//! More events than counters: they take turns, their times say for how long,
//! and the scaled counts are right.

use ktap::Outcome;
use ktap::check;
use perf_event::Attr;
use perf_event::Count;
use perf_event::Event;
use pmu_selftests::codes::INSTRUCTIONS;
use pmu_selftests::codes::on_pmc;
use pmu_selftests::machine;
use pmu_selftests::work;

/// Rotation happens every 4 ms (perf_event_mux_interval_ms).
const NANOSECONDS: u64 = 400_000_000;

/// The share by which scaled counts may be off. Where the speed of work varies,
/// as in an emulator on a busy host, what one event misses is not what it gets.
fn tolerance() -> f64 {
    if machine::instructions_make_time() {
        machine::kernel_share(2) as f64 / 100.0
    } else {
        0.25
    }
}

fn open_on_pmcs(pmcs: &[u64]) -> perf_event::Result<Vec<Event>> {
    pmcs.iter()
        .map(|&pmc| Attr::raw(on_pmc(pmc, INSTRUCTIONS)).open())
        .collect()
}

/// Counts one long work with all the events at once.
fn count_all(events: &[Event]) -> perf_event::Result<(u64, Vec<Count>)> {
    for event in events {
        event.enable()?;
    }
    let done = work::run_for(NANOSECONDS);
    for event in events {
        event.disable()?;
    }
    let counts = events
        .iter()
        .map(Event::read)
        .collect::<perf_event::Result<_>>()?;
    Ok((done, counts))
}

/// Each got between `least` and `most` of the time, and its share of counts.
fn expect_shares(done: u64, counts: &[Count], least: f64, most: f64) -> Outcome {
    let tolerance = tolerance();
    for count in counts {
        let share = count.running as f64 / count.enabled as f64;
        check!(
            share > least && share < most,
            "share {share:.3}: {counts:?}"
        );
        let error = count.scaled() / done as f64 - 1.0;
        check!(
            error.abs() < tolerance,
            "{done} done, scaled {:.0} ({:+.2} %): {counts:?}",
            count.scaled(),
            error * 100.0
        );
    }
    Ok(())
}

fn two_on_one_counter() -> Outcome {
    let (done, counts) = count_all(&open_on_pmcs(&[1, 1])?)?;
    expect_shares(done, &counts, 0.4, 0.6)
}

fn three_on_one_counter() -> Outcome {
    let (done, counts) = count_all(&open_on_pmcs(&[3, 3, 3])?)?;
    expect_shares(done, &counts, 0.23, 0.43)
}

fn eight_on_four_counters() -> Outcome {
    let (done, counts) = count_all(&open_on_pmcs(&[1, 2, 3, 4, 1, 2, 3, 4])?)?;
    expect_shares(done, &counts, 0.15, 0.85)
}

fn a_dozen_on_any_counter() -> Outcome {
    let mut events = Vec::new();
    for _ in 0..12 {
        events.push(Attr::raw(INSTRUCTIONS).open()?);
    }
    let (done, counts) = count_all(&events)?;
    expect_shares(done, &counts, 0.15, 0.85)
}

fn no_turns_when_all_fit() -> Outcome {
    let (done, counts) = count_all(&open_on_pmcs(&[1, 2, 3, 4])?)?;
    for count in counts {
        check!(count.enabled == count.running, "{count:?}");
        check!(count.value >= done, "{done} done, {count:?}");
    }
    Ok(())
}

fn groups_rotate_whole() -> Outcome {
    let mut groups = Vec::new();
    for _ in 0..2 {
        let leader = Attr::raw(on_pmc(1, INSTRUCTIONS)).grouped().open()?;
        let mut members = Vec::new();
        for pmc in 2..=4 {
            let attr = Attr::raw(on_pmc(pmc, INSTRUCTIONS));
            members.push(attr.open_with(&leader)?);
        }
        groups.push((leader, members));
    }
    for (leader, _) in &groups {
        leader.enable()?;
    }
    let done = work::run_for(NANOSECONDS);
    for (leader, _) in &groups {
        leader.disable()?;
    }
    let tolerance = tolerance();
    for (leader, _) in &groups {
        let group = leader.read_group()?;
        let share = group.running as f64 / group.enabled as f64;
        check!(share > 0.4 && share < 0.6, "share {share:.3}: {group:?}");
        let first = group.values[0].0;
        for &(value, _) in &group.values {
            // The members of one group never part: a few instructions a turn.
            check!(value.abs_diff(first) < 8 * 200, "{group:?}");
        }
        let error = first as f64 / share / done as f64 - 1.0;
        check!(
            error.abs() < tolerance,
            "{done} done, off {error:+.3}: {group:?}"
        );
    }
    Ok(())
}

/// Events of a CPU rotate as well, and leave those of a task their turns.
fn cpu_events_rotate() -> Outcome {
    machine::pin_to(0)?;
    let mut events = Vec::new();
    for _ in 0..2 {
        events.push(Attr::raw(on_pmc(2, INSTRUCTIONS)).on_cpu(0).open()?);
    }
    let (done, counts) = count_all(&events)?;
    expect_shares(done, &counts, 0.4, 0.6)
}

fn main() {
    ktap::run(&[
        ("two_on_one_counter", two_on_one_counter),
        ("three_on_one_counter", three_on_one_counter),
        ("eight_on_four_counters", eight_on_four_counters),
        ("a_dozen_on_any_counter", a_dozen_on_any_counter),
        ("no_turns_when_all_fit", no_turns_when_all_fit),
        ("groups_rotate_whole", groups_rotate_whole),
        ("cpu_events_rotate", cpu_events_rotate),
    ])
}

// SPDX-License-Identifier: GPL-2.0
//! Inherited events: children and threads count into their parent's event.

use std::thread;

use pmu_selftests::prelude::*;

/// Long compared to fork and exit (some hundred thousand instructions).
const WORK: u64 = 50_000_000;

/// Opens an enabled event of instructions that children inherit.
fn inherited() -> perf_event::Result<Event> {
    Attr::instructions().inherit(true).enabled().open()
}

fn child() -> Result<Peer, Failure> {
    Peer::spawn(|_| {
        work::run(WORK);
        Ok(())
    })
}

/// Checks that the count is `times` the work, and little more.
#[track_caller]
fn expect_works(event: &Event, times: u64) -> Outcome {
    let count = event.read()?;
    expect_within(count, count.value, WORK * times..WORK * times + WORK / 2)
}

fn child_is_added() -> Outcome {
    let event = inherited()?;
    child()?.join()?;
    expect_works(&event, 1)?;
    work::run(WORK);
    expect_works(&event, 2)
}

fn grandchildren_are_added() -> Outcome {
    let event = inherited()?;
    let parent = Peer::spawn(|_| {
        work::run(WORK);
        let (first, second) = (child()?, child()?);
        first.join()?;
        second.join()
    })?;
    parent.join()?;
    expect_works(&event, 3)
}

fn groups_are_inherited() -> Outcome {
    let attrs = [1, 2].map(|pmc| Attr::raw(on_pmc(pmc, INSTRUCTIONS)).inherit(true));
    let group = open_group(attrs)?;
    group[0].enable()?;
    child()?.join()?;
    group[0].disable()?;
    expect_works(&group[0], 1)?;
    expect_works(&group[1], 1)?;
    let (leads, follows) = (group[0].read()?.value, group[1].read()?.value);
    check!(leads.abs_diff(follows) < 1000, "{leads}, {follows}");
    Ok(())
}

/// A group cannot count any more, because two of its events need the same counter and the first was
/// enabled last. A fork succeeds nevertheless.
fn group_that_cannot_count_is_inherited() -> Outcome {
    let attr = |code| Attr::raw(code).inherit(true);
    let leader = attr(RUN_INSTRUCTIONS).open()?;
    let first = attr(on_pmc(2, INSTRUCTIONS)).open_in(Some(&leader))?;
    let _second = attr(on_pmc(2, CYCLES)).open_with(&leader)?;
    first.enable()?;
    leader.enable()?;
    child()?.join()
}

fn threads_are_added() -> Outcome {
    let event = inherited()?;
    let threads: Vec<_> = (0..4).map(|_| thread::spawn(|| work::run(WORK))).collect();
    for thread in threads {
        check!(thread.join().is_ok());
    }
    // The kernel may still be ending a thread that is already joined, but its count is added
    // before.
    expect_works(&event, 4)
}

ktap::main! {
    child_is_added, grandchildren_are_added,
    groups_are_inherited, group_that_cannot_count_is_inherited, threads_are_added,
}

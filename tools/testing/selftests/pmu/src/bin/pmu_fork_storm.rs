// SPDX-License-Identifier: GPL-2.0
//! Many short-lived children with inherited events, and many events opened and
//! closed beside them: no count is lost, nothing is left behind.

use std::fs;
use std::iter;

use pmu_selftests::prelude::*;

/// Whole rounds. What fork and exit take is below a fifth of it, on a plain kernel.
const WORK: u64 = 20_000 * work::ROUND;

/// So many in all, and half as many of their own.
fn children() -> u64 {
    if ktap::is_long() { 200 } else { 80 }
}

fn inherited(code: u64) -> Attr {
    Attr::raw(code).inherit(true)
}

/// Children run ten at a time; every second one has a child of its own. Returns how
/// much they do.
fn storm() -> Result<u64, Failure> {
    for _ in 0..children() / 10 {
        let mut children = Vec::new();
        for index in 0..10 {
            children.push(Peer::spawn(move |_| {
                work::run(WORK);
                if index % 2 == 1 {
                    let mut own = worker(WORK)?;
                    own.tell()?;
                    own.join()?;
                }
                Ok(())
            })?);
        }
        children.into_iter().try_for_each(Peer::join)?;
    }
    Ok((children() + children() / 2) * WORK)
}

fn expect_sum(event: &Event, done: u64) -> Outcome {
    let count = event.read()?.value;
    expect_within(
        "the sum",
        count,
        done..done + machine::kernel_share(done / 5),
    )
}

fn inherited_event() -> Outcome {
    let event = inherited(INSTRUCTIONS).enabled().open()?;
    let done = storm()?;
    expect_sum(&event, done)
}

fn inherited_group() -> Outcome {
    let group = open_group((1..=4).map(|pmc| inherited(on_pmc(pmc, INSTRUCTIONS))))?;
    group[0].enable()?;
    let done = storm()?;
    group.iter().try_for_each(|event| expect_sum(event, done))
}

/// More inherited events than counters: each child's are multiplexed.
fn inherited_and_multiplexed() -> Outcome {
    let attr = inherited(on_pmc(1, INSTRUCTIONS)).enabled();
    let events = [attr.open()?, attr.open()?];
    storm()?;
    for event in &events {
        let count = event.read()?;
        check!(
            count.running > 0 && count.running < count.enabled,
            "{count:?}"
        );
        check!(count.value > 0, "{count:?}");
    }
    Ok(())
}

/// Someone opens, enables and closes all the while.
fn beside_opens_and_closes() -> Outcome {
    let event = inherited(on_pmc(1, INSTRUCTIONS)).enabled().open()?;
    let churn = Peer::spawn(|_| {
        for round in 0..2000 {
            let leader = Attr::raw(on_pmc(2 + round % 3, CYCLES)).enabled();
            open_group([leader, Attr::raw(INSTRUCTIONS)])?;
        }
        Ok(())
    })?;
    let done = storm()?;
    churn.join()?;
    // The churning child counts too, by what its system calls take.
    let count = event.read()?;
    check!(count.value >= done, "{done} done, {count:?}");
    Ok(())
}

fn nothing_is_left() -> Outcome {
    let before = fs::read_dir("/proc/self/fd")?.count();
    for _ in 0..200 {
        let event = inherited(INSTRUCTIONS).enabled().open()?;
        Peer::spawn(|_| Ok(()))?.join()?;
        check!(event.read()?.value > 0);
    }
    check!(fs::read_dir("/proc/self/fd")?.count() == before);
    // The PMU is free: a pinned group of all six counters gets on it.
    let [leader, members @ ..] = ALL_COUNTERS.map(Attr::raw);
    let group = open_group(iter::once(leader.pinned(true)).chain(members))?;
    group[0].enable()?;
    work::run(WORK);
    let count = group[0].read()?;
    check!(
        count.value > 0 && count.enabled == count.running,
        "{count:?}"
    );
    Ok(())
}

ktap::main! {
    inherited_event, inherited_group, inherited_and_multiplexed, beside_opens_and_closes,
    nothing_is_left,
}

// SPDX-License-Identifier: GPL-2.0
//! Many short-lived children with inherited events, and many events opened and
//! closed beside them: no count is lost, nothing is left behind.

use std::fs;
use std::io;

use ktap::Outcome;
use ktap::check;
use perf_event::Attr;
use perf_event::Event;
use pmu_selftests::codes::CYCLES;
use pmu_selftests::codes::INSTRUCTIONS;
use pmu_selftests::codes::on_pmc;
use pmu_selftests::machine;
use pmu_selftests::process::Child;
use pmu_selftests::work;

const CHILDREN: u64 = 200;
/// What fork and exit take is below a fifth of it, on a plain kernel.
const WORK: u64 = 5_000_000;

fn inherited(attr: Attr) -> Attr {
    attr.inherit(true)
}

/// Children run ten at a time; every second one has a child of its own.
fn storm() -> io::Result<u64> {
    let mut works = 0;
    for _ in 0..CHILDREN / 10 {
        let mut children = Vec::new();
        for index in 0..10 {
            works += 1 + index % 2;
            children.push(Child::spawn(move || {
                work::run(WORK);
                if index % 2 == 1 {
                    Child::spawn(|| {
                        work::run(WORK);
                        Ok(())
                    })?
                    .wait()?;
                }
                Ok(())
            })?);
        }
        for child in children {
            child.wait()?;
        }
    }
    Ok(works)
}

fn expect_sum(event: &Event, works: u64) -> Outcome {
    // Whole rounds only are done, so allow for what is cut off.
    let done = works * (WORK / work::ROUND * work::ROUND);
    let count = event.read()?;
    check!(
        count.value >= done && count.value < done + machine::kernel_share(done / 5),
        "{done} done by {works} children, {count:?}"
    );
    Ok(())
}

fn inherited_event() -> Outcome {
    let event = inherited(Attr::instructions()).enabled().open()?;
    let works = storm()?;
    expect_sum(&event, works)
}

fn inherited_group() -> Outcome {
    let leader = inherited(Attr::raw(on_pmc(1, INSTRUCTIONS))).open()?;
    let mut members = Vec::new();
    for pmc in 2..=4 {
        let attr = inherited(Attr::raw(on_pmc(pmc, INSTRUCTIONS)));
        members.push(attr.open_with(&leader)?);
    }
    leader.enable()?;
    let works = storm()?;
    for event in members.iter().chain([&leader]) {
        expect_sum(event, works)?;
    }
    Ok(())
}

/// More inherited events than counters: each child's are multiplexed.
fn inherited_and_multiplexed() -> Outcome {
    let mut events = Vec::new();
    for _ in 0..2 {
        events.push(
            inherited(Attr::raw(on_pmc(1, INSTRUCTIONS)))
                .enabled()
                .open()?,
        );
    }
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
    let event = inherited(Attr::raw(on_pmc(1, INSTRUCTIONS)))
        .enabled()
        .open()?;
    let churn = Child::spawn(|| {
        for round in 0..2000 {
            let attr = Attr::raw(on_pmc(2 + round % 3, CYCLES));
            let leader = attr.enabled().open()?;
            let _member = Attr::raw(INSTRUCTIONS).open_with(&leader)?;
        }
        Ok(())
    })?;
    let works = storm()?;
    churn.wait()?;
    let count = event.read()?;
    // The churning child counts too, by what its system calls take.
    check!(
        count.value >= works * (WORK / work::ROUND * work::ROUND),
        "{works}: {count:?}"
    );
    Ok(())
}

fn nothing_is_left() -> Outcome {
    let before = fs::read_dir("/proc/self/fd")?.count();
    for _ in 0..200 {
        let event = inherited(Attr::instructions()).enabled().open()?;
        Child::spawn(|| Ok(()))?.wait()?;
        check!(event.read()?.value > 0);
    }
    check!(fs::read_dir("/proc/self/fd")?.count() == before);
    // The PMU is free: a pinned group of all six counters gets on it.
    let attr = Attr::raw(on_pmc(1, CYCLES)).pinned(true);
    let leader = attr.open()?;
    let mut members = Vec::new();
    for code in [
        on_pmc(2, CYCLES),
        on_pmc(3, CYCLES),
        on_pmc(4, CYCLES),
        0x500fa,
        0x600f4,
    ] {
        members.push(Attr::raw(code).open_with(&leader)?);
    }
    leader.enable()?;
    work::run(WORK);
    let count = leader.read()?;
    check!(
        count.value > 0 && count.enabled == count.running,
        "{count:?}"
    );
    Ok(())
}

fn main() {
    ktap::run(&[
        ("inherited_event", inherited_event),
        ("inherited_group", inherited_group),
        ("inherited_and_multiplexed", inherited_and_multiplexed),
        ("beside_opens_and_closes", beside_opens_and_closes),
        ("nothing_is_left", nothing_is_left),
    ])
}

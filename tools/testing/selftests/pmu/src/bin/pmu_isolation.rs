// SPDX-License-Identifier: GPL-2.0
//! Tasks that share a CPU count only their own work, over any number of context switches.

use std::thread;

use pmu_selftests::fields::sample::IP;
use pmu_selftests::prelude::*;

const WORK: u64 = 20_000_000;

/// Number of pieces into which work is divided.
const PIECES: u64 = 100;

/// Checks a count of own work. A switch adds some thousand instructions of the kernel.
#[track_caller]
fn expect_own(count: u64, done: u64) -> Outcome {
    expect_within(done, count, done..done + machine::kernel_share(done / 4))
}

/// Works in pieces and yields the CPU between them. Returns the instructions done.
fn work_and_yield(instructions: u64) -> u64 {
    let piece = || {
        let done = work::run(instructions / PIECES);
        thread::yield_now();
        done
    };
    (0..PIECES).map(|_| piece()).sum()
}

/// Counts `instructions` of this task in pieces, and checks that the count is its own work.
fn counts_its_own(event: &Event, instructions: u64) -> Outcome {
    let mut done = 0;
    let count = event.count(|| done = work_and_yield(instructions))?;
    expect_own(count, done)
}

/// Tests three processes that each count their own work, on the same counter.
fn processes_count_themselves() -> Outcome {
    cpu::pin_to(0)?;
    let mut children = Vec::new();
    for times in 1..=3 {
        children.push(Peer::spawn(move |_| {
            let event = Attr::raw(on_pmc(1, INSTRUCTIONS)).open()?;
            counts_its_own(&event, times * WORK)
        })?);
    }
    children.into_iter().try_for_each(Peer::join)
}

/// Checks that an event of this task counts only its own work while a child does `child`.
fn beside(event: Attr, child: fn() -> Outcome) -> Outcome {
    cpu::pin_to(0)?;
    let event = event.open()?;
    let child = Peer::spawn(|_| child())?;
    counts_its_own(&event, WORK)?;
    child.join()
}

/// Tests that sampling in one task does not change the counts of another task.
fn beside_a_sampling_task() -> Outcome {
    beside(Attr::raw(on_pmc(2, INSTRUCTIONS)), || {
        let attr = Attr::raw(on_pmc(2, INSTRUCTIONS)).sampling(10_000, IP);
        attr.open()?.count(|| {
            work_and_yield(WORK);
        })?;
        Ok(())
    })
}

fn threads_count_themselves() -> Outcome {
    cpu::pin_to(0)?;
    let count = |times| counts_its_own(&Attr::instructions().open()?, times * WORK / 4);
    let threads: Vec<_> = (1..=4)
        .map(|times| thread::spawn(move || count(times)))
        .collect();
    for thread in threads {
        match thread.join() {
            Ok(outcome) => outcome?,
            Err(_) => ktap::fail("a thread panicked")?,
        }
    }
    Ok(())
}

/// Tests that counts follow a task from CPU to CPU.
fn migration() -> Outcome {
    let cpus = cpu::two()?;
    let event = Attr::raw(on_pmc(3, INSTRUCTIONS)).enabled().open()?;
    let mut done = 0;
    for turn in 0..100 {
        cpu::pin_to(cpus[turn % 2])?;
        done += work::run(WORK / 50);
    }
    event.disable()?;
    let count = event.read()?;
    check!(count.enabled == count.running, "{count:?}");
    expect_own(count.value, done)
}

ktap::main! {
    processes_count_themselves,
    beside_a_sampling_task, threads_count_themselves, migration,
}

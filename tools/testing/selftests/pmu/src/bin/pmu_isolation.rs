// SPDX-License-Identifier: GPL-2.0
//! Tasks that share a CPU count their own work only, through any number of
//! context switches.

use std::io;
use std::sync::mpsc;
use std::thread;

use ktap::Outcome;
use ktap::check;
use perf_event::Attr;
use pmu_selftests::codes::INSTRUCTIONS;
use pmu_selftests::codes::RUN_INSTRUCTIONS;
use pmu_selftests::codes::on_pmc;
use pmu_selftests::machine;
use pmu_selftests::process::Child;
use pmu_selftests::process::Turnstile;
use pmu_selftests::work;

const WORK: u64 = 20_000_000;

/// A switch costs the task some thousand instructions of the kernel's.
fn own(count: u64, done: u64) -> bool {
    count >= done && count < done + machine::kernel_share(done / 4)
}

/// Works in pieces and lets the others run in between.
fn work_and_yield(instructions: u64) {
    for _ in 0..100 {
        work::run(instructions / 100);
        thread::yield_now();
    }
}

/// Each of three processes counts its own work, on the same counter.
fn processes_count_themselves() -> Outcome {
    machine::pin_to(0)?;
    let mut children = Vec::new();
    for times in 1..=3 {
        children.push(Child::spawn(move || {
            let event = Attr::raw(on_pmc(1, INSTRUCTIONS)).open()?;
            let count = event.count(|| work_and_yield(times * WORK))?;
            let done = times * WORK / 100 / work::ROUND * work::ROUND * 100;
            if own(count, done) {
                return Ok(());
            }
            Err(io::Error::other(format!("{done} done, {count} counted")))
        })?);
    }
    for child in children {
        child.wait()?;
    }
    Ok(())
}

/// From outside, too: one event for each of two tasks on one CPU.
fn observed_from_outside() -> Outcome {
    machine::pin_to(0)?;
    let go = Turnstile::new()?;
    let mut tasks = Vec::new();
    for times in [1, 4] {
        let child = Child::spawn(|| {
            go.pass()?;
            work_and_yield(times * WORK);
            Ok(())
        })?;
        let event = Attr::raw(RUN_INSTRUCTIONS)
            .enabled()
            .pid(child.pid())
            .open()?;
        tasks.push((child, event, times));
    }
    go.open()?;
    go.open()?;
    for (child, event, times) in tasks {
        child.wait()?;
        let count = event.read()?;
        // Whole rounds only are done, so allow for what is cut off.
        check!(
            own(count.value, times * WORK * 99 / 100),
            "{times}: {count:?}"
        );
    }
    Ok(())
}

/// The neighbour without events is not counted, and does not disturb.
fn neighbour_without_events() -> Outcome {
    machine::pin_to(0)?;
    let event = Attr::instructions().open()?;
    let child = Child::spawn(|| {
        work_and_yield(10 * WORK);
        Ok(())
    })?;
    let count = event.count(|| work_and_yield(WORK))?;
    check!(own(count, WORK * 99 / 100), "{WORK} done, {count} counted");
    child.wait()?;
    Ok(())
}

/// Sampling in one task leaves the counts of the other alone.
fn beside_a_sampling_task() -> Outcome {
    machine::pin_to(0)?;
    let event = Attr::raw(on_pmc(2, INSTRUCTIONS)).open()?;
    let child = Child::spawn(|| {
        let what = perf_event::sys::PERF_SAMPLE_IP;
        let event = Attr::raw(on_pmc(2, INSTRUCTIONS))
            .sampling(10_000, what.into())
            .open()?;
        event.count(|| work_and_yield(WORK))?;
        Ok(())
    })?;
    let count = event.count(|| work_and_yield(WORK))?;
    check!(own(count, WORK * 99 / 100), "{WORK} done, {count} counted");
    child.wait()?;
    Ok(())
}

fn threads_count_themselves() -> Outcome {
    machine::pin_to(0)?;
    let (sender, receiver) = mpsc::channel();
    let threads: Vec<_> = (1..=4)
        .map(|times| {
            let sender = sender.clone();
            thread::spawn(move || {
                let count = Attr::instructions()
                    .open()
                    .and_then(|event| event.count(|| work_and_yield(times * WORK / 4)));
                sender.send((times, count))
            })
        })
        .collect();
    for thread in threads {
        check!(thread.join().is_ok_and(|sent| sent.is_ok()));
    }
    for (times, count) in receiver.try_iter() {
        let count = count?;
        check!(own(count, times * WORK / 4 * 98 / 100), "{times}: {count}");
    }
    Ok(())
}

/// The process' event is the main thread's, not its threads'.
fn threads_are_not_the_process() -> Outcome {
    let event = Attr::instructions().enabled().open()?;
    let thread = thread::spawn(|| work::run(5 * WORK));
    check!(thread.join().is_ok());
    let count = event.read()?;
    check!(count.value < WORK, "{count:?}");
    Ok(())
}

/// Counts follow a task from CPU to CPU.
fn migration() -> Outcome {
    let cpus = machine::online_cpus()?;
    if cpus.len() < 2 {
        return ktap::skip("needs two CPUs");
    }
    let event = Attr::raw(on_pmc(3, INSTRUCTIONS)).enabled().open()?;
    let mut done = 0;
    for turn in 0..100 {
        machine::pin_to(cpus[turn % 2])?;
        done += work::run(WORK / 50);
    }
    event.disable()?;
    let count = event.read()?;
    check!(own(count.value, done), "{done} done, {count:?}");
    check!(count.enabled == count.running, "{count:?}");
    Ok(())
}

fn main() {
    ktap::run(&[
        ("processes_count_themselves", processes_count_themselves),
        ("observed_from_outside", observed_from_outside),
        ("neighbour_without_events", neighbour_without_events),
        ("beside_a_sampling_task", beside_a_sampling_task),
        ("threads_count_themselves", threads_count_themselves),
        ("threads_are_not_the_process", threads_are_not_the_process),
        ("migration", migration),
    ])
}

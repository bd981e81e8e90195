// SPDX-License-Identifier: GPL-2.0
//! Events of a CPU: they count every task that runs there, and none elsewhere.

use ktap::Outcome;
use ktap::check;
use perf_event::Attr;
use pmu_selftests::codes::RUN_INSTRUCTIONS;
use pmu_selftests::machine;
use pmu_selftests::process::Child;
use pmu_selftests::process::Turnstile;
use pmu_selftests::work;

/// Long enough that the system's own work is small beside it.
const WORK: u64 = 50_000_000;

/// The CPU's own work (ticks, the test's system calls) may add this share.
fn plausible(count: u64, done: u64) -> bool {
    count >= done && count < done + done / 2
}

fn counts_the_caller() -> Outcome {
    machine::pin_to(0)?;
    for attr in [Attr::instructions(), Attr::raw(RUN_INSTRUCTIONS)] {
        let event = attr.on_cpu(0).open()?;
        let mut done = 0;
        let count = event.count(|| done = work::run(WORK))?;
        check!(plausible(count, done), "{done} done, {count} counted");
    }
    Ok(())
}

fn counts_every_task() -> Outcome {
    machine::pin_to(0)?;
    let event = Attr::instructions().on_cpu(0).open()?;
    event.enable()?;
    let mut children = Vec::new();
    for _ in 0..3 {
        children.push(Child::spawn(|| {
            work::run(WORK);
            Ok(())
        })?);
    }
    for child in children {
        child.wait()?;
    }
    event.disable()?;
    let count = event.read()?.value;
    check!(
        plausible(count, 3 * WORK),
        "three times {WORK} done, {count} counted"
    );
    Ok(())
}

fn ignores_other_cpus() -> Outcome {
    let cpus = machine::online_cpus()?;
    if cpus.len() < 2 {
        return ktap::skip("needs two CPUs");
    }
    machine::pin_to(cpus[0])?;
    let there = Attr::instructions().on_cpu(cpus[1]).open()?;
    let count = there.count(|| {
        work::run(WORK);
    })?;
    check!(count < WORK / 10, "an idle CPU counted {count}");
    Ok(())
}

fn system_wide() -> Outcome {
    let cpus = machine::online_cpus()?;
    let mut events = Vec::new();
    for &cpu in &cpus {
        events.push(Attr::instructions().on_cpu(cpu).open()?);
    }
    for event in &events {
        event.enable()?;
    }
    let mut children = Vec::new();
    for &cpu in &cpus {
        children.push(Child::spawn(move || {
            machine::pin_to(cpu)?;
            work::run(WORK);
            Ok(())
        })?);
    }
    for child in children {
        child.wait()?;
    }
    let mut total = 0;
    for event in &events {
        event.disable()?;
        let count = event.read()?;
        check!(count.value >= WORK, "one CPU's share: {count:?}");
        check!(count.enabled == count.running, "{count:?}");
        total += count.value;
    }
    let done = WORK * cpus.len() as u64;
    check!(plausible(total, done), "{done} done, {total} counted");
    Ok(())
}

/// A task's event that is also bound to a CPU counts the task there only.
fn task_on_one_cpu() -> Outcome {
    let cpus = machine::online_cpus()?;
    if cpus.len() < 2 {
        return ktap::skip("needs two CPUs");
    }
    let event = Attr::instructions().cpu(cpus[1] as i32).open()?;
    machine::pin_to(cpus[0])?;
    event.enable()?;
    work::run(WORK);
    let before = event.read()?;
    check!(before.value == 0, "counted on another CPU: {before:?}");
    machine::pin_to(cpus[1])?;
    let done = work::run(WORK);
    event.disable()?;
    let count = event.read()?.value;
    check!(plausible(count, done), "{done} done, {count} counted");
    Ok(())
}

/// A CPU's event and a task's event count the same instructions at once.
fn beside_a_task_event() -> Outcome {
    machine::pin_to(0)?;
    let go = Turnstile::new()?;
    let child = Child::spawn(|| {
        go.pass()?;
        work::run(WORK);
        Ok(())
    })?;
    let task = Attr::instructions().enabled().pid(child.pid()).open()?;
    let cpu = Attr::instructions().enabled().on_cpu(0).open()?;
    go.open()?;
    child.wait()?;
    cpu.disable()?;
    let (task, cpu) = (task.read()?, cpu.read()?);
    check!(plausible(task.value, WORK), "task: {task:?}");
    check!(plausible(cpu.value, WORK), "cpu: {cpu:?}");
    check!(cpu.value >= task.value, "cpu: {cpu:?}, task: {task:?}");
    Ok(())
}

fn main() {
    ktap::run(&[
        ("counts_the_caller", counts_the_caller),
        ("counts_every_task", counts_every_task),
        ("ignores_other_cpus", ignores_other_cpus),
        ("system_wide", system_wide),
        ("task_on_one_cpu", task_on_one_cpu),
        ("beside_a_task_event", beside_a_task_event),
    ])
}

// SPDX-License-Identifier: GPL-2.0
//! CPUs that come and go while their events are open.

use std::io;

use ktap::Outcome;
use ktap::check;
use perf_event::Attr;
use pmu_selftests::codes::INSTRUCTIONS;
use pmu_selftests::codes::on_pmc;
use pmu_selftests::errno_of;
use pmu_selftests::machine;
use pmu_selftests::process::Child;
use pmu_selftests::process::Turnstile;
use pmu_selftests::work;

const WORK: u64 = 20_000_000;

/// A CPU that is back online at the end of the test, however that comes.
struct Visitor {
    cpu: usize,
}

impl Visitor {
    fn away(&self) -> io::Result<()> {
        machine::set_online(self.cpu, false)
    }

    fn back(&self) -> io::Result<()> {
        machine::set_online(self.cpu, true)
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        // Writing 1 for a CPU that is online changes nothing.
        let _ = self.back();
    }
}

/// The last CPU, if it can be taken away, and the caller on the first one.
fn visitor() -> io::Result<Option<Visitor>> {
    let cpus = machine::online_cpus()?;
    let (Some(&first), Some(&last)) = (cpus.first(), cpus.last()) else {
        return Ok(None);
    };
    if first == last {
        return Ok(None);
    }
    machine::pin_to(first)?;
    Ok(Some(Visitor { cpu: last }))
}

/// Has a task work on one CPU, and waits for it.
fn work_on(cpu: usize, instructions: u64) -> io::Result<()> {
    Child::spawn(move || {
        machine::pin_to(cpu)?;
        work::run(instructions);
        Ok(())
    })?
    .wait()
}

fn event_of_a_cpu_that_leaves() -> Outcome {
    let Some(visitor) = visitor()? else {
        return ktap::skip("needs two CPUs");
    };
    let event = Attr::instructions().enabled().on_cpu(visitor.cpu).open()?;
    work_on(visitor.cpu, WORK)?;
    visitor.away()?;
    let before = event.read()?;
    check!(before.value >= WORK, "{before:?}");
    work::run(WORK);
    let after = event.read()?;
    check!(after.value == before.value, "{before:?}, then {after:?}");
    // Control of it is harmless while it is away.
    event.disable()?;
    event.enable()?;
    event.reset()?;
    check!(event.read()?.value == 0);
    Ok(())
}

fn new_event_after_return() -> Outcome {
    let Some(visitor) = visitor()? else {
        return ktap::skip("needs two CPUs");
    };
    let here = machine::online_cpus()?[0];
    let stays = Attr::instructions().enabled().on_cpu(here).open()?;
    for _ in 0..5 {
        let old = Attr::instructions().enabled().on_cpu(visitor.cpu).open()?;
        visitor.away()?;
        let errno = errno_of(Attr::instructions().on_cpu(visitor.cpu).open());
        check!(
            errno == libc::ENODEV,
            "opened on a CPU that is away: errno {errno}"
        );
        visitor.back()?;
        let new = Attr::instructions().enabled().on_cpu(visitor.cpu).open()?;
        work_on(visitor.cpu, WORK)?;
        let count = new.read()?;
        check!(count.value >= WORK && count.value < 2 * WORK, "{count:?}");
        drop(old);
    }
    let before = stays.read()?.value;
    let done = work::run(WORK);
    check!(
        stays.read()?.value >= before + done,
        "the CPU that stayed stopped counting"
    );
    Ok(())
}

/// A task's event bound to a CPU: it waits while that CPU is away.
fn task_event_bound_to_it() -> Outcome {
    let Some(visitor) = visitor()? else {
        return ktap::skip("needs two CPUs");
    };
    let event = Attr::instructions()
        .enabled()
        .cpu(visitor.cpu as i32)
        .open()?;
    machine::pin_to(visitor.cpu)?;
    work::run(WORK);
    machine::set_affinity(&machine::online_cpus()?)?;
    visitor.away()?;
    let before = event.read()?;
    check!(before.value >= WORK, "{before:?}");
    work::run(WORK);
    let away = event.read()?;
    check!(away.value == before.value, "{before:?}, then {away:?}");
    visitor.back()?;
    machine::pin_to(visitor.cpu)?;
    let done = work::run(WORK);
    let after = event.read()?;
    check!(after.value >= away.value + done, "{away:?}, then {after:?}");
    Ok(())
}

/// A task that counts is driven off its CPU and back on, again and again.
fn counting_task_is_moved() -> Outcome {
    let Some(visitor) = visitor()? else {
        return ktap::skip("needs two CPUs");
    };
    let cpu = visitor.cpu;
    let go = Turnstile::new()?;
    let child = Child::spawn(|| {
        machine::set_affinity(&machine::online_cpus()?)?;
        go.pass()?;
        for _ in 0..50 {
            // It fails while the CPU is away, and that is fine.
            let _ = machine::pin_to(cpu);
            work::run(WORK);
        }
        Ok(())
    })?;
    let event = Attr::raw(on_pmc(2, INSTRUCTIONS))
        .enabled()
        .pid(child.pid())
        .open()?;
    go.open()?;
    for _ in 0..10 {
        visitor.away()?;
        work::run(WORK);
        visitor.back()?;
        work::run(WORK);
    }
    child.wait()?;
    let (count, done) = (event.read()?, 50 * WORK);
    check!(
        count.value >= done * 99 / 100 && count.value < done + done / 10,
        "{done} done, {count:?}"
    );
    check!(count.enabled == count.running, "{count:?}");
    Ok(())
}

/// Sampling goes on after the return as well: the PMU is set up anew there.
fn sampling_after_return() -> Outcome {
    let Some(visitor) = visitor()? else {
        return ktap::skip("needs two CPUs");
    };
    visitor.away()?;
    visitor.back()?;
    machine::pin_to(visitor.cpu)?;
    let what = perf_event::sys::PERF_SAMPLE_IP;
    let event = Attr::instructions().sampling(100_000, what.into()).open()?;
    let mut ring = pmu_selftests::ring::Ring::map(&event, 64)?;
    event.count(|| {
        work::run(WORK);
    })?;
    let taken = ring
        .take()
        .iter()
        .filter(|record| record.is_sample())
        .count();
    check!(taken > 100, "{taken} samples");
    Ok(())
}

fn main() {
    if let Err(error) = machine::keep_sample_rate() {
        eprintln!("perf_cpu_time_max_percent cannot be set: {error}");
    }
    ktap::run(&[
        ("event_of_a_cpu_that_leaves", event_of_a_cpu_that_leaves),
        ("new_event_after_return", new_event_after_return),
        ("task_event_bound_to_it", task_event_bound_to_it),
        ("counting_task_is_moved", counting_task_is_moved),
        ("sampling_after_return", sampling_after_return),
    ])
}

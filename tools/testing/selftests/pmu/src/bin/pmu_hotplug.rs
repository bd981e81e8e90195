// SPDX-License-Identifier: GPL-2.0
//! Events of CPUs that go offline and online again.

use ktap::cpu::Visitor;
use pmu_selftests::prelude::*;

const WORK: u64 = 20_000_000;

/// Runs work in a task on one CPU, and waits for its end.
fn work_on(cpu: usize) -> Outcome {
    let worker = Peer::spawn(|_| {
        cpu::pin_to(cpu)?;
        work::run(WORK);
        Ok(())
    })?;
    worker.join()
}

fn event_of_a_cpu_that_leaves() -> Outcome {
    let visitor = Visitor::find()?;
    let event = Attr::instructions().enabled().on_cpu(visitor.cpu).open()?;
    work_on(visitor.cpu)?;
    visitor.away()?;
    let before = event.read()?;
    check!(before.value >= WORK, "{before:?}");
    work::run(WORK);
    let after = event.read()?;
    check!(after.value == before.value, "{before:?}, then {after:?}");
    // Control of the event has no effect while the CPU is offline, and does no harm.
    event.disable()?;
    event.enable()?;
    event.reset()?;
    check!(event.read()?.value == 0);
    Ok(())
}

fn new_event_after_return() -> Outcome {
    let visitor = Visitor::find()?;
    let stays = Attr::instructions().enabled().on_cpu(visitor.home).open()?;
    for _ in 0..5 {
        let old = Attr::instructions().enabled().on_cpu(visitor.cpu).open()?;
        visitor.away()?;
        let errno = errno_of(Attr::instructions().on_cpu(visitor.cpu).open());
        check!(
            errno == libc::ENODEV,
            "on a CPU that is away: errno {errno}"
        );
        visitor.back()?;
        let new = Attr::instructions().enabled().on_cpu(visitor.cpu).open()?;
        work_on(visitor.cpu)?;
        expect_within("the new one", new.read()?.value, WORK..2 * WORK)?;
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

/// Tests a counting task whose CPU goes offline and online repeatedly.
fn counting_task_is_moved() -> Outcome {
    let visitor = Visitor::find()?;
    let mut child = Peer::spawn(|parent| {
        cpu::set_affinity(0, cpu::online()?)?;
        parent.listen()?;
        for _ in 0..50 {
            // This fails while the CPU is offline. The task then works on another CPU.
            let _ = cpu::pin_to(visitor.cpu);
            work::run(WORK);
        }
        Ok(())
    })?;
    let attr = Attr::raw(on_pmc(2, INSTRUCTIONS)).enabled();
    let event = attr.pid(child.pid()).open()?;
    child.tell()?;
    for _ in 0..10 {
        visitor.away()?;
        work::run(WORK);
        visitor.back()?;
        work::run(WORK);
    }
    child.join()?;
    let (count, done) = (event.read()?, 50 * WORK);
    expect_within(count, count.value, done * 99 / 100..done + done / 10)?;
    check!(count.enabled == count.running, "{count:?}");
    Ok(())
}

ktap::main! {
    event_of_a_cpu_that_leaves, new_event_after_return,
    counting_task_is_moved,
}

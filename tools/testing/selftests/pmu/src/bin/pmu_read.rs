// SPDX-License-Identifier: GPL-2.0
//! Reads of counts: the count of a running event only grows, no event is counted twice, and reset
//! sets the count to 0.

use pmu_selftests::prelude::*;

const WORK: u64 = 1_000_000;

fn grows_while_running() -> Outcome {
    for code in [INSTRUCTIONS, CYCLES, RUN_INSTRUCTIONS, RUN_CYCLES] {
        let event = Attr::raw(code).enabled().open()?;
        let mut last = event.read()?;
        for _ in 0..500 {
            let next = event.read()?;
            check!(
                next.value > last.value && next.enabled >= last.enabled,
                "{code:#x}: {last:?}, then {next:?}"
            );
            last = next;
        }
    }
    Ok(())
}

/// Tests many reads. Each read adds the PMC's change since the last one, and adds none twice.
fn many_reads_lose_nothing() -> Outcome {
    let event = Attr::instructions().enabled().open()?;
    let mut done = 0;
    let first = event.read()?.value;
    for _ in 0..200 {
        done += work::run(WORK);
        event.read()?;
    }
    expect_within(
        "in all",
        event.read()?.value - first,
        done..done + done / 20,
    )
}

fn goes_on_after_a_pause() -> Outcome {
    let event = Attr::instructions().open()?;
    let mut done = 0;
    for _ in 0..20 {
        event.enable()?;
        done += work::run(WORK);
        event.disable()?;
        work::run(5 * WORK);
    }
    expect_within("in all", event.read()?.value, done..done + done / 10)
}

fn reset_while_running() -> Outcome {
    let event = Attr::instructions().enabled().open()?;
    work::run(100 * WORK);
    event.reset()?;
    let done = work::run(WORK);
    expect_within("since reset", event.read()?.value, done..2 * done)
}

fn enable_twice_is_enable() -> Outcome {
    let event = Attr::instructions().open()?;
    event.enable()?;
    event.enable()?;
    let done = work::run(WORK);
    event.disable()?;
    event.disable()?;
    expect_within("in all", event.read()?.value, done..2 * done)
}

/// Tests reads of a task on another CPU, which the kernel performs on that CPU.
fn of_a_task_on_another_cpu() -> Outcome {
    let [home, other] = cpu::two()?;
    cpu::pin_to(home)?;
    let child = Peer::spawn(|_| {
        cpu::pin_to(other)?;
        work::run_for(500_000_000);
        Ok(())
    })?;
    let event = Attr::instructions().enabled().pid(child.pid()).open()?;
    let mut last = event.read()?;
    for _ in 0..100 {
        work::run_for(1_000_000);
        let next = event.read()?;
        check!(next.value >= last.value, "{last:?}, then {next:?}");
        last = next;
    }
    check!(last.value > 0, "never seen to count: {last:?}");
    child.join()?;
    let done = event.read()?;
    check!(done.value >= last.value, "{last:?}, then {done:?}");
    Ok(())
}

ktap::main! {
    grows_while_running, many_reads_lose_nothing,
    goes_on_after_a_pause, reset_while_running,
    enable_twice_is_enable, of_a_task_on_another_cpu,
}

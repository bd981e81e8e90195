// SPDX-License-Identifier: GPL-2.0
//! Reading: running counts only grow, stopped ones stand still, reset clears.

use ktap::Outcome;
use ktap::check;
use perf_event::Attr;
use pmu_selftests::codes::CYCLES;
use pmu_selftests::codes::INSTRUCTIONS;
use pmu_selftests::codes::RUN_CYCLES;
use pmu_selftests::codes::RUN_INSTRUCTIONS;
use pmu_selftests::errno_of;
use pmu_selftests::machine;
use pmu_selftests::process::Child;
use pmu_selftests::process::Turnstile;
use pmu_selftests::work;

const WORK: u64 = 1_000_000;

fn grows_while_running() -> Outcome {
    for code in [INSTRUCTIONS, CYCLES, RUN_INSTRUCTIONS, RUN_CYCLES] {
        let event = Attr::raw(code).enabled().open()?;
        let mut last = event.read()?;
        for _ in 0..500 {
            let next = event.read()?;
            check!(
                next.value > last.value,
                "{code:#x}: {last:?}, then {next:?}"
            );
            check!(
                next.enabled >= last.enabled,
                "{code:#x}: {last:?}, then {next:?}"
            );
            last = next;
        }
    }
    Ok(())
}

/// Each read takes the PMC's change since the last; none is taken twice.
fn many_reads_lose_nothing() -> Outcome {
    let event = Attr::instructions().enabled().open()?;
    let mut done = 0;
    let first = event.read()?.value;
    for _ in 0..200 {
        done += work::run(WORK);
        event.read()?;
    }
    let count = event.read()?.value - first;
    check!(
        count >= done && count < done + done / 20,
        "{done} done, {count} counted"
    );
    Ok(())
}

fn stands_still_when_disabled() -> Outcome {
    let event = Attr::instructions().enabled().open()?;
    work::run(WORK);
    event.disable()?;
    let before = event.read()?;
    work::run(WORK);
    for _ in 0..10 {
        let after = event.read()?;
        check!(after == before, "{before:?}, then {after:?}");
    }
    Ok(())
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
    let count = event.read()?.value;
    check!(
        count >= done && count < done + done / 10,
        "{done} done, {count} counted"
    );
    Ok(())
}

fn reset_clears_the_count_only() -> Outcome {
    let event = Attr::instructions().enabled().open()?;
    work::run(WORK);
    event.disable()?;
    let before = event.read()?;
    event.reset()?;
    let after = event.read()?;
    check!(after.value == 0, "{after:?}");
    check!(after.enabled == before.enabled && after.running == before.running);
    Ok(())
}

fn reset_while_running() -> Outcome {
    let event = Attr::instructions().enabled().open()?;
    work::run(100 * WORK);
    event.reset()?;
    let done = work::run(WORK);
    let count = event.read()?.value;
    check!(
        count >= done && count < 2 * done,
        "{done} done since reset, {count} counted"
    );
    Ok(())
}

fn enable_twice_is_enable() -> Outcome {
    let event = Attr::instructions().open()?;
    event.enable()?;
    event.enable()?;
    let done = work::run(WORK);
    event.disable()?;
    event.disable()?;
    let count = event.read()?.value;
    check!(
        count >= done && count < 2 * done,
        "{done} done, {count} counted"
    );
    Ok(())
}

/// A task that sleeps does not count, whoever reads.
fn of_a_sleeping_task() -> Outcome {
    let (worked, leave) = (Turnstile::new()?, Turnstile::new()?);
    let start = Turnstile::new()?;
    let child = Child::spawn(|| {
        start.pass()?;
        work::run(WORK);
        worked.open()?;
        leave.pass()
    })?;
    let event = Attr::instructions().enabled().pid(child.pid()).open()?;
    start.open()?;
    worked.pass()?;
    // Until the child has gone to sleep behind its last word.
    std::thread::sleep(std::time::Duration::from_millis(50));
    let before = event.read()?;
    check!(before.value >= WORK, "{before:?}");
    work::run(20 * WORK);
    let after = event.read()?;
    check!(after == before, "{before:?}, then {after:?}");
    leave.open()?;
    child.wait()?;
    let last = event.read()?;
    check!(
        last.value > after.value,
        "its way out: {after:?}, then {last:?}"
    );
    Ok(())
}

/// Reading a task on another CPU asks that CPU.
fn of_a_task_on_another_cpu() -> Outcome {
    let cpus = machine::online_cpus()?;
    if cpus.len() < 2 {
        return ktap::skip("needs two CPUs");
    }
    machine::pin_to(cpus[0])?;
    let there = cpus[1];
    let child = Child::spawn(move || {
        machine::pin_to(there)?;
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
    child.wait()?;
    let done = event.read()?;
    check!(done.value >= last.value, "{last:?}, then {done:?}");
    Ok(())
}

fn times_follow_the_clock() -> Outcome {
    let event = Attr::cycles().open()?;
    let start = machine::time_base();
    event.enable()?;
    work::run(100 * WORK);
    event.disable()?;
    let ticks = machine::time_base() - start;
    let nanoseconds = ticks * 1000 / (machine::TIME_BASE_HZ / 1_000_000);
    let count = event.read()?;
    check!(count.enabled == count.running, "{count:?}");
    // The event is off for a part of the time only when another task runs.
    check!(
        count.enabled <= nanoseconds && count.enabled > nanoseconds / 2,
        "{nanoseconds} ns by the time base, {count:?}"
    );
    Ok(())
}

fn short_buffer_is_refused() -> Outcome {
    let event = Attr::cycles().open()?;
    let result = event.read_bytes(&mut [0; 8]);
    check!(errno_of(result) == libc::ENOSPC, "8 bytes of 24 wanted");
    Ok(())
}

fn main() {
    ktap::run(&[
        ("grows_while_running", grows_while_running),
        ("many_reads_lose_nothing", many_reads_lose_nothing),
        ("stands_still_when_disabled", stands_still_when_disabled),
        ("goes_on_after_a_pause", goes_on_after_a_pause),
        ("reset_clears_the_count_only", reset_clears_the_count_only),
        ("reset_while_running", reset_while_running),
        ("enable_twice_is_enable", enable_twice_is_enable),
        ("of_a_sleeping_task", of_a_sleeping_task),
        ("of_a_task_on_another_cpu", of_a_task_on_another_cpu),
        ("times_follow_the_clock", times_follow_the_clock),
        ("short_buffer_is_refused", short_buffer_is_refused),
    ])
}

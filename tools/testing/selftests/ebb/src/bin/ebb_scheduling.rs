// SPDX-License-Identifier: GPL-2.0
//! Which event gets the PMU. An EBB event that is scheduled evicts all events that are not pinned.
//! Of two pinned groups one runs and the other is in error state, where read() returns end of file.
//! Among the groups of a task the first one runs.

use ebb::Attr;
use ebb::Event;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ebb_selftests::session::INSTRUCTIONS;
use ebb_selftests::trap;
use ebb_selftests::trap::traps;
use ktap::Failure;
use ktap::Outcome;
use ktap::check;
use ktap::cpu;
use ktap::process::Peer;
use std::time::Duration;

fn toil() {
    session::work_for(1_000_000);
}

/// Returns an event of this thread that is not EBB.
fn of_task() -> Attr {
    Attr::raw(INSTRUCTIONS).user_only()
}

/// Returns such an event of the CPU, on which the test then stays.
fn of_cpu() -> Result<Attr, Failure> {
    Ok(of_task().on_cpu(cpu::pin()?))
}

fn read_gives_eight_bytes() -> Outcome {
    let event = session::enabled(&ebb::event(CYCLES).read_format(0))?;
    let n = event.read_bytes(&mut [0; 64])?;
    check!(n == 8, "read gave {n} bytes");
    Ok(())
}

/// The rival stops counting while the EBB event is on the PMU, and continues afterwards.
fn evicted(rival: &Attr) -> Outcome {
    let rival = session::enabled(rival)?;
    toil();
    let ebb = session::without_handler()?;
    let before = rival.read()?;
    check!(before.running > 0, "the rival never ran");
    toil();
    let after = rival.read()?;
    check!(after.enabled > before.enabled, "{before:?} {after:?}");
    check!(
        after.running == before.running && after.value == before.value,
        "the rival ran beside the EBB event: {before:?} {after:?}"
    );
    ebb.check_scheduled()?;
    ebb.close();
    // perf core looks for events to schedule at the next task switch or rotation, not at a close.
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(10));
        toil();
        if rival.read()?.value > after.value {
            return Ok(());
        }
    }
    ktap::fail("the rival was not scheduled again")
}

fn unpinned_cannot_push_in(rival: &Attr) -> Outcome {
    let ebb = session::without_handler()?;
    let rival = session::enabled(rival)?;
    toil();
    let times = rival.read()?;
    check!(times.running == 0, "the rival ran: {times:?}");
    Ok(ebb.check_scheduled()?)
}

/// Fails unless a pinned rival had the PMU for all of its time.
fn check_ran(rival: &Event) -> Outcome {
    let times = rival.read()?;
    check!(
        times.value > 0 && times.enabled == times.running,
        "{times:?}"
    );
    Ok(())
}

/// An EBB event that was scheduled first keeps the PMU, and `rival` is in error state.
fn first_ebb_wins(rival: &Attr) -> Outcome {
    let ebb = session::without_handler()?;
    let rival = session::enabled(rival)?;
    check!(!rival.is_scheduled()?, "scheduled beside the EBB event");
    Ok(ebb.check_scheduled()?)
}

/// perf core schedules a CPU's pinned events before those of tasks, so a later one still gets the
/// PMU; the EBB event then stays in error state.
fn cpu_pinned_after_ebb() -> Outcome {
    let ebb = session::cycles(10_000)?;
    session::wait_for(5, 10_000)?;
    let rival = session::enabled(&of_cpu()?.pinned(true))?;
    check!(
        !ebb.is_scheduled()?,
        "scheduled beside the CPU's pinned one"
    );
    check!(traps(trap::write_pmc1)?, "PMC1 is still writable");
    session::expect_none(100_000)?;
    check_ran(&rival)?;
    drop(rival);
    check!(!ebb.is_scheduled()?, "the EBB event left the error state");
    session::end(ebb)
}

/// An EBB event that this process opens for a child is in error state if the CPU had a pinned event
/// before.
fn child_ebb_after_cpu_pinned() -> Outcome {
    let rival = session::enabled(&of_cpu()?.pinned(true))?;
    let mut child = Peer::spawn(|parent| {
        parent.listen()?;
        toil();
        parent.tell()?;
        parent.listen()
    })?;
    let ebb = session::put_on(child.pid())?;
    child.tell()?;
    child.listen()?;
    check!(!ebb.is_scheduled()?, "scheduled beside a pinned one");
    check_ran(&rival)?;
    child.tell_and_join()
}

ktap::main! {
    first: session::require_ebb;
    read_gives_eight_bytes,
    evicts_cpu_event = evicted(&of_cpu()?),
    evicts_task_event = evicted(&of_task()),
    cpu_event_after_ebb = unpinned_cannot_push_in(&of_cpu()?),
    task_event_after_ebb = unpinned_cannot_push_in(&of_task()),
    ebb_before_task_pinned = first_ebb_wins(&of_task().pinned(true)),
    ebb_before_ebb = first_ebb_wins(&ebb::event(0x2001e)),
    cpu_pinned_after_ebb, child_ebb_after_cpu_pinned,
}

// SPDX-License-Identifier: GPL-2.0
//! Who gets the PMU: a scheduled EBB event evicts everything not pinned; of two
//! pinned groups one runs and the other is put in error state, where read()
//! gives end of file. Among the groups of a task the first one runs.

use ebb::Attr;
use ebb::Event;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ebb_selftests::session::INSTRUCTIONS;
use ebb_selftests::session::require_ebb;
use ebb_selftests::session::work;
use ebb_selftests::trap;
use ebb_selftests::trap::traps;
use ktap::Failure;
use ktap::OrFail;
use ktap::Outcome;
use ktap::check;
use ktap::cpu;
use ktap::process::Peer;
use std::time::Duration;

fn toil() {
    for _ in 0..1000 {
        work();
    }
}

/// An enabled event that is not EBB.
fn rival(event: Attr) -> Result<Event, Failure> {
    let event = event.open().or_fail("open rival")?;
    event.enable().or_fail("enable rival")?;
    Ok(event)
}

fn cpu_rival() -> Result<Attr, Failure> {
    let cpu = cpu::pin()? as libc::c_int;
    Ok(Attr::raw(INSTRUCTIONS).user_only().pid(-1).cpu(cpu))
}

/// An EBB event on this thread, opened and enabled.
fn ebb_event() -> Result<Event, Failure> {
    let event = ebb::event(CYCLES).open().or_fail("open EBB")?;
    event.enable().or_fail("enable EBB")?;
    Ok(event)
}

fn read_gives_eight_bytes() -> Outcome {
    let event = ebb::event(CYCLES).read_format(0);
    let event = event.open().or_fail("open")?;
    event.enable().or_fail("enable")?;
    let n = event.read_bytes(&mut [0; 64]).or_fail("read")?;
    check!(n == 8, "read gave {n} bytes");
    Ok(())
}

/// The rival stops counting while the EBB event is there, and goes on after it.
fn evicted(rival: Event) -> Outcome {
    toil();
    let ebb = ebb_event()?;
    ebb.check_scheduled().or_fail("EBB event")?;
    let before = rival.read().or_fail("read rival")?;
    check!(before.running > 0, "the rival never ran");
    toil();
    let after = rival.read().or_fail("read rival")?;
    check!(after.enabled > before.enabled, "{before:?} {after:?}");
    check!(
        after.running == before.running && after.value == before.value,
        "the rival ran beside the EBB event: {before:?} {after:?}"
    );
    ebb.check_scheduled().or_fail("EBB event, still")?;
    ebb.close();
    // perf core looks for something to put on the PMU at the next switch or
    // rotation, not at a close.
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(10));
        toil();
        if rival.read().or_fail("read rival")?.value > after.value {
            return Ok(());
        }
    }
    ktap::fail("the rival never came back")
}

fn evicts_cpu_event() -> Outcome {
    evicted(rival(cpu_rival()?)?)
}

fn evicts_task_event() -> Outcome {
    evicted(rival(Attr::raw(INSTRUCTIONS).user_only())?)
}

fn unpinned_cannot_push_in(event: Attr) -> Outcome {
    let ebb = ebb_event()?;
    let rival = rival(event)?;
    toil();
    let times = rival.read().or_fail("read rival")?;
    check!(times.running == 0, "the rival ran: {times:?}");
    ebb.check_scheduled().or_fail("EBB event")?;
    Ok(())
}

fn cpu_event_after_ebb() -> Outcome {
    unpinned_cannot_push_in(cpu_rival()?)
}

fn task_event_after_ebb() -> Outcome {
    unpinned_cannot_push_in(Attr::raw(INSTRUCTIONS).user_only())
}

/// A pinned rival that is there first keeps the PMU for all of its time.
fn first_pinned_wins(event: Attr) -> Outcome {
    let rival = rival(event.pinned(true))?;
    let ebb = ebb_event()?;
    check!(
        !ebb.is_scheduled().or_fail("read EBB")?,
        "the EBB event is scheduled beside a pinned one"
    );
    toil();
    let times = rival.read().or_fail("read rival")?;
    check!(times.value > 0, "the rival counted nothing");
    check!(times.enabled == times.running, "{times:?}");
    drop(rival);
    let again = ebb_event()?;
    again.check_scheduled().or_fail("EBB event without rival")
}

fn cpu_pinned_before_ebb() -> Outcome {
    first_pinned_wins(cpu_rival()?)
}

fn task_pinned_before_ebb() -> Outcome {
    first_pinned_wins(Attr::raw(INSTRUCTIONS).user_only())
}

fn ebb_before_task_pinned() -> Outcome {
    let ebb = ebb_event()?;
    ebb.check_scheduled().or_fail("EBB event alone")?;
    let rival = rival(Attr::raw(INSTRUCTIONS).user_only().pinned(true))?;
    check!(
        !rival.is_scheduled().or_fail("read rival")?,
        "the rival is scheduled beside the EBB event"
    );
    ebb.check_scheduled().or_fail("EBB event beside rival")
}

/// perf core puts a CPU's pinned events on the PMU before those of tasks, so one
/// that comes later still wins; the EBB event is then in error state for good.
fn cpu_pinned_after_ebb() -> Outcome {
    let ebb = session::begin(CYCLES, 10_000, session::count_only)?;
    session::wait_for(5, 10_000)?;
    let rival = rival(cpu_rival()?.pinned(true))?;
    check!(
        !ebb.is_scheduled().or_fail("read EBB")?,
        "the EBB event is scheduled beside a pinned one of the CPU"
    );
    check!(traps(trap::write_pmc1)?, "PMC1 is still writable");
    session::expect_none(100_000)?;
    let times = rival.read().or_fail("read rival")?;
    check!(
        times.value > 0 && times.enabled == times.running,
        "{times:?}"
    );
    drop(rival);
    check!(
        !ebb.is_scheduled().or_fail("read EBB")?,
        "the EBB event left the error state"
    );
    session::end(ebb);
    Ok(())
}

fn ebb_before_ebb() -> Outcome {
    let first = ebb_event()?;
    let second = ebb::event(0x2001e).open().or_fail("second")?;
    second.enable().or_fail("enable second")?;
    check!(
        !second.is_scheduled().or_fail("read second")?,
        "two EBB groups are scheduled at a time"
    );
    first.check_scheduled().or_fail("first EBB event")
}

/// An EBB event that this process puts on a child meets a pinned event of the
/// CPU that was there before.
fn child_ebb_after_cpu_pinned() -> Outcome {
    let rival = rival(cpu_rival()?.pinned(true))?;
    let mut child = Peer::spawn(|parent| {
        parent.listen()?;
        toil();
        parent.tell()?;
        parent.listen()
    })?;
    let ebb = ebb::event(CYCLES)
        .pid(child.pid())
        .open()
        .or_fail("open EBB on child")?;
    ebb.enable().or_fail("enable EBB on child")?;
    child.tell()?;
    child.listen()?;
    check!(
        !ebb.is_scheduled().or_fail("read EBB")?,
        "the child's EBB event is scheduled beside a pinned one"
    );
    let times = rival.read().or_fail("read rival")?;
    check!(times.enabled == times.running, "{times:?}");
    child.tell()?;
    child.join()
}

ktap::main! {
    first: require_ebb;
    read_gives_eight_bytes, evicts_cpu_event, evicts_task_event, cpu_event_after_ebb,
    task_event_after_ebb, cpu_pinned_before_ebb, task_pinned_before_ebb, ebb_before_task_pinned,
    cpu_pinned_after_ebb, ebb_before_ebb, child_ebb_after_cpu_pinned,
}

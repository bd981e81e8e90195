// SPDX-License-Identifier: GPL-2.0
//! EBB events on another task: who may open one, which task gets access and EBBs, and what happens
//! when one of the two tasks ends or the target changes its CPU.

use ebb::Pmc;
use ebb::pmc;
use ebb::reg::Bescr;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ebb_selftests::session::put_on;
use ebb_selftests::trap;
use ebb_selftests::trap::traps;
use ktap::Failure;
use ktap::Outcome;
use ktap::check;
use ktap::cpu;
use ktap::process;
use ktap::process::Link;
use ktap::process::NOBODY;
use ktap::process::Peer;
use pmu_selftests::errno_of;

const PERIOD: u32 = 10_000;

/// Works until the event is on the PMU; an interrupt puts it there.
fn await_access() -> Outcome {
    for _ in 0..10_000 {
        if !traps(trap::write_pmc1)? {
            return Ok(());
        }
        session::work();
    }
    ktap::fail("the event was never scheduled")
}

/// Takes EBBs of an event that another task opens for this one, then wakes `parent`.
fn take_ebbs(parent: &mut Link, n: u64) -> Outcome {
    session::install(session::count_only)?;
    await_access()?;
    session::arm(PERIOD)?;
    session::wait_for(n, PERIOD)?;
    check!(ebb::spurious() == 0, "{} spurious EBBs", ebb::spurious());
    parent.tell()
}

/// Spawns a task that waits for an event, takes `n` EBBs, and calls `then`.
fn target(n: u64, then: fn(&mut Link) -> Outcome) -> Result<Peer, Failure> {
    Peer::spawn(|parent| {
        parent.listen()?;
        take_ebbs(parent, n)?;
        then(parent)
    })
}

/// Spawns such a task on `cpu`. It does not sleep: the event reaches a running task.
fn running_target(cpu: usize, n: u64, then: fn(&mut Link) -> Outcome) -> Result<Peer, Failure> {
    let mut target = Peer::spawn(|parent| {
        cpu::pin_to(cpu)?;
        parent.tell()?;
        take_ebbs(parent, n)?;
        then(parent)
    })?;
    target.listen()?;
    Ok(target)
}

/// Checks the state of a task that takes EBBs after its event was closed.
fn event_gone() -> Outcome {
    check!(traps(trap::write_pmc1)?, "PMC1 is writable");
    check!(traps(trap::write_mmcr0)?, "MMCR0 is writable");
    session::expect_none(50 * u64::from(PERIOD))?;
    let bescr = Bescr::read();
    check!(bescr.has(Bescr::GE | Bescr::PME), "{bescr:?}");
    ebb::disable();
    Ok(())
}

/// Takes EBBs of an event of this task.
fn own_event() -> Outcome {
    let own = session::cycles(PERIOD)?;
    session::wait_for(20, PERIOD)?;
    session::end(own)
}

/// Checks the errno when an ordinary user opens an event on a task of `owner`. Other tasks of that
/// user may inspect the task if it is `dumpable`.
fn expect_errno(owner: libc::uid_t, dumpable: bool, expected: i32) -> Outcome {
    let mut target = Peer::spawn(|parent| {
        if owner != 0 {
            process::become_user(owner)?;
            // SAFETY: The system call takes no pointers.
            ktap::os_result(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, i64::from(dumpable)) })?;
        }
        parent.tell()?;
        parent.listen()
    })?;
    target.listen()?;
    let event = ebb::event(CYCLES).pid(target.pid());
    Peer::spawn(|_| {
        process::become_user(NOBODY)?;
        let errno = errno_of(event.open());
        check!(
            errno == expected,
            "user {owner}, dumpable {dumpable}: {errno}"
        );
        Ok(())
    })?
    .join()?;
    target.tell_and_join()
}

fn permission() -> Outcome {
    expect_errno(NOBODY, true, 0)?;
    expect_errno(0, true, libc::EACCES)?;
    expect_errno(NOBODY - 1, true, libc::EACCES)?;
    expect_errno(NOBODY, false, libc::EACCES)
}

fn no_such_task() -> Outcome {
    let gone = Peer::spawn(|_| Ok(()))?;
    let event = ebb::event(CYCLES).pid(gone.pid());
    gone.join()?;
    let errno = errno_of(event.open());
    check!(errno == libc::ESRCH, "errno {errno}");
    Ok(())
}

/// The target gets EBBs and access, its parent gets neither, until the parent closes the event.
fn target_is_served() -> Outcome {
    let mut child = target(100, |parent| {
        parent.listen()?;
        event_gone()
    })?;
    let event = put_on(child.pid())?;
    check!(traps(trap::write_pmc1)?, "the parent may write PMC1");
    child.tell()?;
    child.listen()?;
    event.check_scheduled()?;
    event.close();
    child.tell_and_join()
}

/// A target that has enabled EBBs before the event exists gets them when its counter overflows,
/// without writing BESCR again.
fn target_is_ready() -> Outcome {
    let mut child = Peer::spawn(|parent| {
        session::install(session::count_only)?;
        ebb::enable()?;
        let ready = Bescr::GE | Bescr::PME;
        check!(Bescr::read() == ready, "{:?}", Bescr::read());
        parent.tell()?;
        await_access()?;
        // The counter is far from its overflow.
        session::expect_none(50 * u64::from(PERIOD))?;
        ebb::start(Pmc::Pmc1, PERIOD.into())?;
        session::wait_for(100, PERIOD)?;
        check!(ebb::spurious() == 0, "{} spurious EBBs", ebb::spurious());
        check!(Bescr::read().has(ready), "{:?}", Bescr::read());
        parent.tell()?;
        parent.listen()?;
        event_gone()
    })?;
    child.listen()?;
    let event = put_on(child.pid())?;
    child.listen()?;
    event.close();
    child.tell_and_join()
}

/// The target ends while it takes EBBs. The event remains open, and is harmless.
fn target_ends_first() -> Outcome {
    for round in 0..10 {
        let mut child = target(20, Link::listen)?;
        let event = put_on(child.pid())?;
        child.tell()?;
        child.listen()?;
        child.tell_and_join()?;
        // None of these calls may do harm.
        event.read()?;
        let _ = event.enable();
        let _ = event.disable();
        // The event is closed before or after the parent has an event of its own.
        let left = (round % 2 != 0).then_some(event);
        let own = session::cycles(PERIOD)?;
        session::wait_for(20, PERIOD)?;
        drop(left);
        session::wait_for(40, PERIOD)?;
        session::end(own)?;
    }
    Ok(())
}

/// The target is killed at a random instruction.
fn target_is_killed() -> Outcome {
    for _ in 0..10 {
        let mut child = target(5, |_| {
            loop {
                session::work();
            }
        })?;
        let event = put_on(child.pid())?;
        child.tell()?;
        child.listen()?;
        process::give_way();
        drop(child);
        event.read()?;
        event.close();
    }
    own_event()
}

/// The opener ends, and its descriptor is closed. Until then the target gets EBBs; after that it
/// has no access.
fn opener_ends_first() -> Outcome {
    for round in 0..10 {
        let mut child = target(20, |parent| {
            parent.listen()?;
            event_gone()?;
            // The target may open a new event.
            own_event()
        })?;
        let pid = child.pid();
        let mut opener = Peer::spawn(|parent| {
            std::mem::forget(put_on(pid)?);
            parent.tell()?;
            parent.listen()
        })?;
        opener.listen()?;
        child.tell()?;
        child.listen()?;
        if round % 2 == 0 {
            opener.tell_and_join()?;
        } else {
            drop(opener);
        }
        child.tell_and_join()?;
    }
    Ok(())
}

/// The opener closes the event while the target holds an alert back: the alert is lost.
fn close_drops_the_targets_alert() -> Outcome {
    let mut child = target(5, |parent| {
        ebb::disable();
        Pmc::Pmc1.write(pmc::OVERFLOW);
        session::work_for(50_000);
        parent.tell()?;
        parent.listen()?;
        ebb::enable()?;
        event_gone()?;
        parent.tell()?;
        parent.listen()?;
        // Wait for the next event.
        await_access()?;
        session::check_fresh()?;
        ebb::enable()?;
        session::expect_none(50 * u64::from(PERIOD))
    })?;
    let event = put_on(child.pid())?;
    child.tell()?;
    // The target has taken its EBBs first; then it has an alert, and waits.
    child.listen()?;
    child.listen()?;
    event.close();
    child.tell()?;
    child.listen()?;
    let _next = put_on(child.pid())?;
    child.tell_and_join()
}

/// The target runs on one CPU and its opener on another, and the opener moves the target between
/// CPUs while it takes EBBs.
fn target_migrates() -> Outcome {
    let [home, there] = cpu::two()?;
    cpu::pin_to(home)?;
    let mut child = running_target(there, 2000, Link::listen)?;
    let event = put_on(child.pid())?;
    for turn in 0..40 {
        let cpu = if turn % 2 == 0 { home } else { there };
        cpu::set_affinity(child.pid(), [cpu])?;
        session::work_for(turn * 10_000);
    }
    child.listen()?;
    event.check_scheduled()?;
    child.tell_and_join()
}

/// The event is closed while the target runs on another CPU.
fn closed_from_another_cpu() -> Outcome {
    let [home, there] = cpu::two()?;
    cpu::pin_to(home)?;
    for _ in 0..10 {
        let mut child = running_target(there, 20, |_| {
            for _ in 0..100_000 {
                session::work();
                if traps(trap::write_pmc2)? {
                    return event_gone();
                }
            }
            ktap::fail("the event is still on the PMU")
        })?;
        let event = put_on(child.pid())?;
        child.listen()?;
        event.close();
        child.join()?;
    }
    Ok(())
}

ktap::main! {
    first: session::require_ebb;
    permission, no_such_task, target_is_served, target_is_ready,
    target_ends_first, target_is_killed, opener_ends_first, close_drops_the_targets_alert,
    target_migrates, closed_from_another_cpu,
}

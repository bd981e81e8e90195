// SPDX-License-Identifier: GPL-2.0
//! An EBB event on another task: who may put one there, and what happens when
//! one of the two, or the CPU, goes away. `ebb_on_child` has the plain case.

use ebb::Event;
use ebb::Pmc;
use ebb::pmc;
use ebb::reg::Bescr;
use ebb::reg::Mmcr0;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ebb_selftests::trap;
use ebb_selftests::trap::traps;
use ktap::Failure;
use ktap::OrFail;
use ktap::Outcome;
use ktap::check;
use ktap::cpu;
use ktap::process;
use ktap::process::Link;
use ktap::process::NOBODY;
use ktap::process::Peer;

const PERIOD: u32 = 10_000;

fn open_on(pid: libc::pid_t) -> perf_event::Result<Event> {
    ebb::event(CYCLES).pid(pid).open()
}

/// [`open_on`], enabled.
fn put_on(pid: libc::pid_t) -> Result<Event, Failure> {
    let event = open_on(pid).or_fail("open on another task")?;
    event.enable().or_fail("enable on another task")?;
    Ok(event)
}

/// Waits, working, until the event is on the PMU: it arrives by an interrupt.
fn await_access() -> Outcome {
    for _ in 0..10_000 {
        if !traps(trap::write_pmc1)? {
            return Ok(());
        }
        session::work();
    }
    ktap::fail("the event never came")
}

/// Takes EBBs from an event that somebody has put here.
fn take_ebbs(n: u64) -> Outcome {
    pmc::freeze();
    // SAFETY: the handler does nothing.
    unsafe { ebb::install(session::count_only) }.or_fail("install")?;
    ebb::start(Pmc::Pmc1, PERIOD).or_fail("start")?;
    ebb::enable().or_fail("enable EBBs")?;
    Mmcr0::PMAE.write();
    session::wait_for(n, PERIOD)
}

/// What holds when the event has gone from a task that takes EBBs.
fn event_gone() -> Outcome {
    check!(traps(trap::write_pmc1)?, "PMC1 is writable");
    check!(traps(trap::write_mmcr0)?, "MMCR0 is writable");
    session::expect_none(50 * u64::from(PERIOD))?;
    let bescr = Bescr::read();
    check!(bescr.has(Bescr::GE | Bescr::PME), "{bescr:?}");
    ebb::disable();
    Ok(())
}

/// Becomes an ordinary user, whom others of the same may look at if `dumpable`.
fn become_user(id: libc::uid_t, dumpable: bool) -> Outcome {
    process::become_user(id)?;
    // SAFETY: a system call without pointers.
    let status = unsafe { libc::prctl(libc::PR_SET_DUMPABLE, libc::c_ulong::from(dumpable)) };
    check!(status == 0, "PR_SET_DUMPABLE failed");
    Ok(())
}

/// An ordinary user asks for an event on a task of the other identity; returns
/// the errno, 0 if it opens.
fn errno_on(owner: libc::uid_t, dumpable: bool) -> Result<i32, Failure> {
    let mut target = Peer::spawn(|parent| {
        if owner != 0 {
            become_user(owner, dumpable)?;
        }
        parent.tell()?;
        parent.listen()
    })?;
    target.listen()?;
    let pid = target.pid();
    let (from, to) = std::io::pipe()?;
    Peer::spawn(|_| {
        become_user(NOBODY, true)?;
        let errno = match open_on(pid) {
            Ok(_) => 0,
            Err(error) => error.errno().unwrap_or(-1),
        };
        std::io::Write::write_all(&mut &to, &errno.to_ne_bytes())?;
        Ok(())
    })?
    .join()?;
    let mut errno = [0; 4];
    std::io::Read::read_exact(&mut &from, &mut errno)?;
    target.tell()?;
    target.join()?;
    Ok(i32::from_ne_bytes(errno))
}

fn permission() -> Outcome {
    let same_user = errno_on(NOBODY, true)?;
    check!(same_user == 0, "a task of the same user: errno {same_user}");
    for (owner, dumpable, what) in [
        (0, true, "root's task"),
        (NOBODY - 1, true, "another user's task"),
        (NOBODY, false, "a task that may not be looked at"),
    ] {
        let errno = errno_on(owner, dumpable)?;
        check!(errno == libc::EACCES, "{what}: errno {errno}");
    }
    Ok(())
}

fn no_such_task() -> Outcome {
    let gone = Peer::spawn(|_| Ok(()))?;
    let pid = gone.pid();
    gone.join()?;
    match open_on(pid) {
        Ok(_) => ktap::fail("an event on a task that has ended"),
        Err(error) if error.errno() == Some(libc::ESRCH) => Ok(()),
        Err(error) => ktap::fail(format!("ESRCH expected: {error}")),
    }
}

/// A target that takes EBBs until it is told to end.
fn target(parent: &mut Link) -> Outcome {
    parent.tell()?;
    parent.listen()?;
    await_access()?;
    take_ebbs(20)?;
    parent.tell()?;
    parent.listen()
}

/// The target ends while it takes EBBs; the event remains, and is harmless.
fn target_ends_first() -> Outcome {
    for round in 0..10 {
        let mut child = Peer::spawn(target)?;
        child.listen()?;
        let event = put_on(child.pid())?;
        child.tell()?;
        child.listen()?;
        child.tell()?;
        child.join()?;
        let n = event.read_bytes(&mut [0; 64]).or_fail("read")?;
        check!(n == 8, "read of an ended task's event gave {n} bytes");
        // Whatever is done to it.
        let _ = event.enable();
        let _ = event.disable();
        // Closed before or after the parent has an event of its own.
        let mut left = Some(event);
        if round % 2 == 0 {
            left = None;
        }
        let own = session::begin(CYCLES, PERIOD, session::count_only)?;
        session::wait_for(20, PERIOD)?;
        drop(left);
        session::wait_for(40, PERIOD)?;
        session::end(own);
    }
    Ok(())
}

/// Killed in the middle, at no particular place.
fn target_is_killed() -> Outcome {
    for _ in 0..10 {
        let mut child = Peer::spawn(|parent| {
            parent.tell()?;
            parent.listen()?;
            await_access()?;
            take_ebbs(5)?;
            parent.tell()?;
            loop {
                session::work();
            }
        })?;
        child.listen()?;
        let event = put_on(child.pid())?;
        child.tell()?;
        child.listen()?;
        process::give_way();
        drop(child);
        let n = event.read_bytes(&mut [0; 64]).or_fail("read")?;
        check!(n == 8, "read of a killed task's event gave {n} bytes");
        event.close();
    }
    let own = session::begin(CYCLES, PERIOD, session::count_only)?;
    session::wait_for(20, PERIOD)?;
    session::end(own);
    Ok(())
}

/// The opener ends, and its descriptor with it; the target has its EBBs until
/// then, and no access after.
fn opener_ends_first() -> Outcome {
    for round in 0..10 {
        let mut child = Peer::spawn(|parent| {
            parent.tell()?;
            parent.listen()?;
            await_access()?;
            take_ebbs(20)?;
            parent.tell()?;
            parent.listen()?;
            event_gone()?;
            // And there may be a new one.
            let own = session::begin(CYCLES, PERIOD, session::count_only)?;
            session::wait_for(20, PERIOD)?;
            session::end(own);
            Ok(())
        })?;
        child.listen()?;
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
            opener.tell()?;
            opener.join()?;
        } else {
            drop(opener);
        }
        child.tell()?;
        child.join()?;
    }
    Ok(())
}

/// Closed by its opener while the target holds an alert back: gone with it.
fn close_drops_the_targets_alert() -> Outcome {
    let mut child = Peer::spawn(|parent| {
        parent.tell()?;
        parent.listen()?;
        await_access()?;
        take_ebbs(5)?;
        ebb::disable();
        Pmc::Pmc1.write(pmc::OVERFLOW);
        for _ in 0..50 {
            session::work();
        }
        parent.tell()?;
        parent.listen()?;
        ebb::enable().or_fail("enable EBBs")?;
        event_gone()?;
        parent.tell()?;
        parent.listen()?;
        await_access()?;
        let mmcr0 = Mmcr0::read();
        check!(mmcr0 == Mmcr0::PMAE, "with the next event: {mmcr0:?}");
        ebb::enable().or_fail("enable EBBs")?;
        session::expect_none(50 * u64::from(PERIOD))
    })?;
    child.listen()?;
    let event = put_on(child.pid())?;
    child.tell()?;
    child.listen()?;
    event.close();
    child.tell()?;
    child.listen()?;
    let _next = put_on(child.pid())?;
    child.tell()?;
    child.join()
}

/// The target runs on one CPU, its opener on the other; and the opener moves it
/// about while it takes EBBs.
fn target_migrates() -> Outcome {
    let cpus = cpu::two()?;
    cpu::pin_to(cpus[0])?;
    let mut child = Peer::spawn(|parent| {
        cpu::pin_to(cpus[1])?;
        parent.tell()?;
        // No sleep: the event comes to a running task.
        await_access()?;
        take_ebbs(2000)?;
        check!(ebb::spurious() == 0, "{} spurious", ebb::spurious());
        parent.tell()?;
        parent.listen()
    })?;
    child.listen()?;
    let event = put_on(child.pid())?;
    for turn in 0..40 {
        cpu::set_affinity(child.pid(), [cpus[turn % 2]])?;
        for _ in 0..turn * 10 {
            session::work();
        }
    }
    child.listen()?;
    event.check_scheduled().or_fail("after the migrations")?;
    child.tell()?;
    child.join()
}

/// Closed while the target runs on another CPU.
fn closed_from_another_cpu() -> Outcome {
    let cpus = cpu::two()?;
    cpu::pin_to(cpus[0])?;
    for _ in 0..10 {
        let mut child = Peer::spawn(|parent| {
            cpu::pin_to(cpus[1])?;
            parent.tell()?;
            await_access()?;
            take_ebbs(20)?;
            parent.tell()?;
            for _ in 0..100_000 {
                session::work();
                if traps(trap::write_pmc2)? {
                    return event_gone();
                }
            }
            ktap::fail("the event did not go")
        })?;
        child.listen()?;
        let event = put_on(child.pid())?;
        child.listen()?;
        event.close();
        child.join()?;
    }
    Ok(())
}

ktap::main! {
    first: session::require_ebb;
    permission, no_such_task, target_ends_first, target_is_killed, opener_ends_first,
    close_drops_the_targets_alert, target_migrates, closed_from_another_cpu,
}

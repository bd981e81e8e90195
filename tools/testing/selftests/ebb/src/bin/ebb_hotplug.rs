// SPDX-License-Identifier: GPL-2.0
//! A CPU goes offline under a task with EBBs, and comes online again. The task's event, its alert
//! and its state move to another CPU with it, also if another task opened the event.

use ebb::Pmc;
use ebb::reg::Bescr;
use ebb::reg::Mmcr2;
use ebb_selftests::alert;
use ebb_selftests::session;
use ebb_selftests::trap;
use ebb_selftests::trap::traps;
use ktap::Outcome;
use ktap::check;
use ktap::cpu;
use ktap::cpu::Visitor;
use ktap::process::Peer;

const PERIOD: u32 = 10_000;
const ROUNDS: usize = 5;

/// Takes EBBs without sleeping until the task is no longer on `cpu`.
fn until_driven_off(cpu: usize) -> Outcome {
    for _ in 0..1_000_000 {
        if cpu::current()? != cpu {
            return Ok(());
        }
        session::wait_for(ebb::count() + 5, PERIOD)?;
    }
    ktap::fail("still on a CPU that is offline")
}

/// EBBs continue while the task's CPU goes offline and comes online.
fn running_task() -> Outcome {
    let visitor = Visitor::find()?;
    let cpu = visitor.cpu;
    let mut child = Peer::spawn(|parent| {
        let event = session::cycles(PERIOD)?;
        for _ in 0..ROUNDS {
            cpu::pin_to(cpu)?;
            session::wait_for(ebb::count() + 20, PERIOD)?;
            parent.tell()?;
            until_driven_off(cpu)?;
            session::wait_for(ebb::count() + 200, PERIOD)?;
            parent.listen()?;
        }
        event.check_scheduled()?;
        session::end(event)
    })?;
    for _ in 0..ROUNDS {
        child.listen()?;
        visitor.away()?;
        session::work_for(2_000_000);
        visitor.back()?;
        child.tell()?;
    }
    child.join()
}

/// The task has a pending alert while it sleeps on that CPU; its MMCR2 must survive.
fn sleeping_task() -> Outcome {
    let visitor = Visitor::find()?;
    let cpu = visitor.cpu;
    let mut child = Peer::spawn(|parent| {
        cpu::pin_to(cpu)?;
        let event = alert::begin(Bescr(0))?;
        let tag = Mmcr2::freeze_problem(Pmc::Pmc3) | Mmcr2::freeze_problem(Pmc::Pmc5);
        tag.write();
        for n in 0..2 * ROUNDS as u64 {
            cpu::pin_to(cpu)?;
            alert::hold();
            alert::raise();
            parent.tell()?;
            parent.listen()?;
            check!(ebb::count() == n, "an EBB while GE was off");
            alert::on();
            alert::expect_total(n + 1, "after its CPU went offline")?;
            let mmcr2 = Mmcr2::read();
            check!(mmcr2 == tag, "{mmcr2:?}");
            parent.tell()?;
            parent.listen()?;
        }
        alert::end(event)
    })?;
    for round in 0..2 * ROUNDS {
        child.listen()?;
        visitor.away()?;
        if round % 2 == 0 {
            // In these rounds the child continues on the same CPU, else on this one.
            visitor.back()?;
        }
        child.tell()?;
        child.listen()?;
        visitor.back()?;
        child.tell()?;
    }
    child.join()
}

/// Another task has opened the event. The target moves to another CPU, then the event is closed
/// while the first CPU is offline.
fn foreign_event() -> Outcome {
    let visitor = Visitor::find()?;
    let cpu = visitor.cpu;
    for _ in 0..ROUNDS {
        let mut child = Peer::spawn(|parent| {
            cpu::pin_to(cpu)?;
            session::install(session::count_only)?;
            parent.tell()?;
            parent.listen()?;
            session::arm(PERIOD)?;
            until_driven_off(cpu)?;
            session::wait_for(ebb::count() + 50, PERIOD)?;
            parent.tell()?;
            parent.listen()?;
            check!(traps(trap::write_pmc1)?, "PMC1 is writable after close");
            session::expect_none(20 * u64::from(PERIOD))
        })?;
        child.listen()?;
        let event = session::put_on(child.pid())?;
        child.tell()?;
        session::work_for(200_000);
        visitor.away()?;
        child.listen()?;
        event.check_scheduled()?;
        event.close();
        child.tell_and_join()?;
        visitor.back()?;
    }
    Ok(())
}

/// A task's event for one CPU only, which goes offline: the task has no EBBs and no access on other
/// CPUs, and both again afterwards. perf core does not schedule an event in error state again, so
/// the test enables it again.
fn event_of_that_cpu_only() -> Outcome {
    let visitor = Visitor::find()?;
    cpu::pin_to(visitor.cpu)?;
    let event = session::on_this_cpu()?;
    session::arm(PERIOD)?;
    session::wait_for(20, PERIOD)?;
    cpu::pin_to(visitor.home)?;
    check!(traps(trap::write_pmc1)?, "PMC1 is writable on another CPU");
    visitor.away()?;
    session::expect_none(20 * u64::from(PERIOD))?;
    visitor.back()?;
    cpu::pin_to(visitor.cpu)?;
    event.disable()?;
    event.enable()?;
    event.check_scheduled()?;
    session::wait_for(ebb::count() + 20, PERIOD)?;
    cpu::pin_to(visitor.home)?;
    session::end(event)
}

/// A CPU that has just come online can run an EBB event.
fn first_event_after_return() -> Outcome {
    let visitor = Visitor::find()?;
    for _ in 0..ROUNDS {
        visitor.away()?;
        visitor.back()?;
        let cpu = visitor.cpu;
        Peer::spawn(|_| {
            cpu::pin_to(cpu)?;
            let event = session::cycles(PERIOD)?;
            session::wait_for(100, PERIOD)?;
            session::end(event)
        })?
        .join()?;
    }
    Ok(())
}

ktap::main! {
    first: session::require_ebb;
    running_task, sleeping_task, foreign_event, event_of_that_cpu_only, first_event_after_return,
}

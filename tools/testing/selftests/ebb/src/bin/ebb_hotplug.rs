// SPDX-License-Identifier: GPL-2.0
//! A CPU goes away under a task with EBBs, and comes back: the task's event, its
//! alert and its state go on elsewhere, whoever put the event there.

use ebb::Pmc;
use ebb::pmc;
use ebb::reg::Bescr;
use ebb::reg::Mmcr0;
use ebb::reg::Mmcr2;
use ebb_selftests::alert;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ebb_selftests::trap;
use ebb_selftests::trap::traps;
use ktap::OrFail;
use ktap::Outcome;
use ktap::check;
use ktap::cpu;
use ktap::cpu::Visitor;
use ktap::process::Peer;

const PERIOD: u32 = 10_000;
const ROUNDS: usize = 5;

/// Goes on with EBBs while its CPU leaves and comes back.
fn running_task() -> Outcome {
    let visitor = Visitor::find()?;
    let cpu = visitor.cpu;
    let mut child = Peer::spawn(|parent| {
        let event = session::begin(CYCLES, PERIOD, session::count_only)?;
        for _ in 0..ROUNDS {
            cpu::pin_to(cpu)?;
            session::wait_for(ebb::count() + 20, PERIOD)?;
            parent.tell()?;
            // Not asleep when it is driven off.
            for _ in 0..1_000_000 {
                if cpu::current()? != cpu {
                    break;
                }
                session::wait_for(ebb::count() + 5, PERIOD)?;
            }
            check!(cpu::current()? != cpu, "still on a CPU that is away");
            session::wait_for(ebb::count() + 200, PERIOD)?;
            parent.listen()?;
        }
        event.check_scheduled().or_fail("at the end")?;
        check!(ebb::spurious() == 0, "{} spurious", ebb::spurious());
        session::end(event);
        Ok(())
    })?;
    for _ in 0..ROUNDS {
        child.listen()?;
        visitor.away()?;
        for _ in 0..2000 {
            session::work();
        }
        visitor.back()?;
        child.tell()?;
    }
    child.join()
}

/// Its alert is pending, or its state frozen, while it sleeps on that CPU.
fn sleeping_task() -> Outcome {
    let visitor = Visitor::find()?;
    let cpu = visitor.cpu;
    let mut child = Peer::spawn(|parent| {
        cpu::pin_to(cpu)?;
        let event = alert::begin(Bescr(0))?;
        let mark = Mmcr2::freeze_problem(3) | Mmcr2::freeze_problem(5);
        mark.write();
        for n in 0..2 * ROUNDS as u64 {
            cpu::pin_to(cpu)?;
            alert::hold();
            alert::raise();
            parent.tell()?;
            parent.listen()?;
            check!(ebb::count() == n, "an EBB in spite of GE");
            alert::on();
            alert::expect_total(n + 1, "after its CPU left")?;
            let mmcr2 = Mmcr2::read();
            check!(mmcr2 == mark, "{mmcr2:?}");
            parent.tell()?;
            parent.listen()?;
        }
        alert::end(event)
    })?;
    for round in 0..2 * ROUNDS {
        child.listen()?;
        visitor.away()?;
        if round % 2 == 0 {
            // The child goes on there again, else here.
            visitor.back()?;
        }
        child.tell()?;
        child.listen()?;
        visitor.back()?;
        child.tell()?;
    }
    child.join()
}

/// The event is another task's; its target is driven off, then the event closed
/// while that CPU is away.
fn foreign_event() -> Outcome {
    let visitor = Visitor::find()?;
    let cpu = visitor.cpu;
    for _ in 0..ROUNDS {
        let mut child = Peer::spawn(|parent| {
            cpu::pin_to(cpu)?;
            // SAFETY: the handler does nothing.
            unsafe { ebb::install(session::count_only) }.or_fail("install")?;
            parent.tell()?;
            parent.listen()?;
            pmc::freeze();
            ebb::start(Pmc::Pmc1, PERIOD).or_fail("start")?;
            ebb::enable().or_fail("enable EBBs")?;
            Mmcr0::PMAE.write();
            for _ in 0..1_000_000 {
                if cpu::current()? != cpu {
                    break;
                }
                session::wait_for(ebb::count() + 5, PERIOD)?;
            }
            check!(cpu::current()? != cpu, "still on a CPU that is away");
            session::wait_for(ebb::count() + 50, PERIOD)?;
            parent.tell()?;
            parent.listen()?;
            check!(traps(trap::write_pmc1)?, "PMC1 is writable after close");
            session::expect_none(20 * u64::from(PERIOD))
        })?;
        child.listen()?;
        let event = ebb::event(CYCLES)
            .pid(child.pid())
            .open()
            .or_fail("open on child")?;
        event.enable().or_fail("enable on child")?;
        child.tell()?;
        for _ in 0..200 {
            session::work();
        }
        visitor.away()?;
        child.listen()?;
        event.check_scheduled().or_fail("after the CPU left")?;
        event.close();
        child.tell()?;
        child.join()?;
        visitor.back()?;
    }
    Ok(())
}

/// A task's event for one CPU only, which leaves: no EBBs and no access while it
/// is away, and all of it again afterwards. An event in error state is not
/// tried again by perf core, so it is enabled anew.
fn event_of_that_cpu_only() -> Outcome {
    let visitor = Visitor::find()?;
    cpu::pin_to(visitor.cpu)?;
    let cpu = libc::c_int::try_from(visitor.cpu).or_fail("number of the CPU")?;
    let event = ebb::event(CYCLES).cpu(cpu).open().or_fail("open")?;
    // SAFETY: the handler does nothing.
    unsafe { ebb::install(session::count_only) }.or_fail("install")?;
    event.enable().or_fail("enable")?;
    ebb::start(Pmc::Pmc1, PERIOD).or_fail("start")?;
    ebb::enable().or_fail("enable EBBs")?;
    session::wait_for(20, PERIOD)?;
    cpu::pin_to(visitor.home)?;
    check!(traps(trap::write_pmc1)?, "PMC1 is writable on another CPU");
    visitor.away()?;
    session::expect_none(20 * u64::from(PERIOD))?;
    visitor.back()?;
    cpu::pin_to(visitor.cpu)?;
    event.disable().or_fail("disable")?;
    event.enable().or_fail("enable again")?;
    event.check_scheduled().or_fail("back again")?;
    session::wait_for(ebb::count() + 20, PERIOD)?;
    cpu::pin_to(visitor.home)?;
    event.close();
    Ok(())
}

/// The first EBB event on a CPU that has just come up.
fn first_event_after_return() -> Outcome {
    let visitor = Visitor::find()?;
    for _ in 0..ROUNDS {
        visitor.away()?;
        visitor.back()?;
        let cpu = visitor.cpu;
        Peer::spawn(|_| {
            cpu::pin_to(cpu)?;
            let event = session::begin(CYCLES, PERIOD, session::count_only)?;
            session::wait_for(100, PERIOD)?;
            session::end(event);
            Ok(())
        })?
        .join()?;
    }
    Ok(())
}

ktap::main! {
    first: session::require_ebb;
    running_task, sleeping_task, foreign_event, event_of_that_cpu_only, first_event_after_return,
}

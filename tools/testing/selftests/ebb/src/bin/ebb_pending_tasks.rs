// SPDX-License-Identifier: GPL-2.0
//! A pending alert goes where its task goes, over context switches, to other
//! CPUs and back, and to nobody else: not to a child, not to a neighbour.

use ebb::reg::Bescr;
use ebb_selftests::alert;
use ebb_selftests::neighbour::Neighbour;
use ebb_selftests::session;
use ktap::Failure;
use ktap::OrFail;
use ktap::Outcome;
use ktap::check;
use ktap::cpu;
use ktap::process;
use ktap::process::Peer;

/// What a neighbour of the test is made by.
type Kind = fn(usize) -> Result<Neighbour, Failure>;

/// An alert that comes while GE is off waits over switches to a neighbour.
fn held(kind: Kind) -> Outcome {
    let neighbour = kind(cpu::pin()?)?;
    let event = alert::begin(Bescr(0))?;
    let before = process::switches();
    for n in 0..50 {
        alert::hold();
        alert::raise();
        for _ in 0..=n % 3 {
            process::give_way();
        }
        check!(ebb::count() == n, "an EBB in spite of GE");
        alert::on();
        alert::expect_total(n + 1, "after a switch")?;
    }
    check!(process::switches() >= before + 50, "no switches happened");
    alert::end(event)?;
    neighbour.join()
}

fn held_beside_a_plain_task() -> Outcome {
    held(Neighbour::plain)
}

fn held_beside_a_counting_task() -> Outcome {
    held(Neighbour::counting)
}

fn held_beside_an_ebb_task() -> Outcome {
    held(Neighbour::expecting)
}

/// The alert comes at any moment of a switch to a neighbour and back: in the
/// program, in the kernel before the switch, and in the kernel after it.
fn in_switches(kind: Kind) -> Outcome {
    let neighbour = kind(cpu::pin()?)?;
    let event = alert::begin(Bescr(0))?;
    alert::sweep(300, "switch", process::give_way)?;
    alert::end(event)?;
    neighbour.join()
}

fn in_switches_to_a_plain_task() -> Outcome {
    in_switches(Neighbour::plain)
}

fn in_switches_to_a_counting_task() -> Outcome {
    in_switches(Neighbour::counting)
}

fn in_switches_to_an_ebb_task() -> Outcome {
    in_switches(Neighbour::expecting)
}

/// The neighbour has GE off half the time.
fn in_switches_to_a_guarded_task() -> Outcome {
    in_switches(Neighbour::guarding)
}

/// Two tasks with a held alert each at the same time.
fn two_tasks_hold_one_each() -> Outcome {
    cpu::pin()?;
    let mut other = Peer::spawn(|parent| {
        let event = alert::begin(Bescr(0))?;
        for n in 0..50 {
            parent.listen()?;
            alert::hold();
            alert::raise();
            parent.tell()?;
            parent.listen()?;
            check!(ebb::count() == n, "an EBB in spite of GE");
            alert::on();
            alert::expect_total(n + 1, "the other task")?;
            parent.tell()?;
        }
        alert::end(event)
    })?;
    let event = alert::begin(Bescr(0))?;
    for n in 0..50 {
        alert::hold();
        alert::raise();
        other.tell()?;
        other.listen()?;
        if n % 2 == 0 {
            alert::on();
            alert::expect_total(n + 1, "before the other")?;
        }
        other.tell()?;
        other.listen()?;
        alert::on();
        alert::expect_total(n + 1, "after the other")?;
    }
    alert::end(event)?;
    other.join()
}

/// What a child sees: nothing of its parent's alert, with an event of its own
/// too.
fn child_without() -> Outcome {
    let bescr = Bescr::read();
    check!(bescr == Bescr(0), "the child's {bescr:?}");
    let event = alert::begin(Bescr(0))?;
    alert::on();
    alert::expect_none("in the child")?;
    alert::due_in(1000);
    alert::expect_total(1, "the child's own")?;
    alert::end(event)
}

fn held_over_fork() -> Outcome {
    let event = alert::begin(Bescr(0))?;
    for n in 0..10 {
        alert::hold();
        alert::raise();
        let child = Peer::spawn(|_| child_without())?;
        // One round with the child first, one with the parent first.
        if n % 2 == 0 {
            child.join()?;
            alert::on();
            alert::expect_total(n + 1, "after the child")?;
        } else {
            alert::on();
            alert::expect_total(n + 1, "before the child")?;
            child.join()?;
        }
    }
    alert::end(event)
}

/// The alert comes at any moment of a fork and of the child's end.
fn in_forks() -> Outcome {
    let event = alert::begin(Bescr(0))?;
    let mut failure = Ok(());
    let fork = || {
        let child = Peer::spawn(|_| {
            let bescr = Bescr::read();
            check!(bescr == Bescr(0), "the child's {bescr:?}");
            Ok(())
        });
        if let Err(why) = child.and_then(Peer::join) {
            failure = Err(why);
        }
    };
    alert::sweep(100, "fork", fork)?;
    failure?;
    alert::end(event)
}

fn held_over_thread_start() -> Outcome {
    let event = alert::begin(Bescr(0))?;
    alert::hold();
    alert::raise();
    let thread = std::thread::spawn(child_without);
    thread.join().map_err(|_| "panic").or_fail("thread")??;
    alert::on();
    alert::expect_total(1, "after the thread")?;
    alert::end(event)
}

/// To another CPU, and there and back, while GE is off.
fn held_over_migration() -> Outcome {
    let cpus = cpu::two()?;
    let neighbours = [
        Neighbour::expecting(cpus[0])?,
        Neighbour::expecting(cpus[1])?,
    ];
    cpu::pin_to(cpus[0])?;
    let event = alert::begin(Bescr(0))?;
    let mut at = 0;
    for n in 0..60 {
        alert::hold();
        alert::raise();
        for _ in 0..=n % 3 {
            at = 1 - at;
            cpu::pin_to(cpus[at])?;
            if n % 2 == 0 {
                process::give_way();
            }
        }
        check!(ebb::count() == n, "an EBB in spite of GE");
        alert::on();
        alert::expect_total(n + 1, "after a migration")?;
    }
    alert::end(event)?;
    neighbours.into_iter().try_for_each(Neighbour::join)
}

/// The alert comes at any moment of a migration.
fn in_migrations() -> Outcome {
    let cpus = cpu::two()?;
    let neighbours = [
        Neighbour::expecting(cpus[0])?,
        Neighbour::expecting(cpus[1])?,
    ];
    cpu::pin_to(cpus[0])?;
    let event = alert::begin(Bescr(0))?;
    let mut at = 0;
    let mut failure = Ok(());
    let migrate = || {
        at = 1 - at;
        if let Err(why) = cpu::pin_to(cpus[at]) {
            failure = Err(why);
        }
    };
    alert::sweep(200, "migration", migrate)?;
    failure?;
    alert::end(event)?;
    neighbours.into_iter().try_for_each(Neighbour::join)
}

ktap::main! {
    first: session::require_ebb;
    held_beside_a_plain_task, held_beside_a_counting_task, held_beside_an_ebb_task,
    in_switches_to_a_plain_task, in_switches_to_a_counting_task, in_switches_to_an_ebb_task,
    in_switches_to_a_guarded_task, two_tasks_hold_one_each, held_over_fork, in_forks,
    held_over_thread_start, held_over_migration, in_migrations,
}

// SPDX-License-Identifier: GPL-2.0
//! A pending alert stays with its task, over context switches and on other CPUs. No other task gets
//! it: neither a child nor a neighbour.

use ebb::reg::Bescr;
use ebb_selftests::alert;
use ebb_selftests::neighbour::Kind;
use ebb_selftests::neighbour::Neighbour;
use ebb_selftests::session;
use ktap::Failure;
use ktap::Outcome;
use ktap::check;
use ktap::cpu;
use ktap::process;
use ktap::process::Peer;

/// An alert that comes while GE is off stays pending over switches to a neighbour.
fn held_beside(kind: Kind) -> Outcome {
    let neighbour = Neighbour::spawn(cpu::pin()?, kind)?;
    let event = alert::begin(Bescr(0))?;
    let before = process::switches();
    for n in 0..50 {
        alert::raise_held();
        for _ in 0..=n % 3 {
            process::give_way();
        }
        alert::release(n, "after a switch")?;
    }
    check!(process::switches() >= before + 50, "no switches happened");
    alert::end(event)?;
    neighbour.join()
}

/// The alert comes at any moment of a switch to a neighbour and back: in the program, in the kernel
/// before the switch, and in the kernel after it.
fn in_switches_beside(kind: Kind) -> Outcome {
    let neighbour = Neighbour::spawn(cpu::pin()?, kind)?;
    alert::sweep(300, "switch", process::give_way)?;
    neighbour.join()
}

/// Two tasks hold an alert back at the same time.
fn two_tasks_hold_one_each() -> Outcome {
    cpu::pin()?;
    let mut other = Peer::spawn(|parent| {
        let event = alert::begin(Bescr(0))?;
        for n in 0..50 {
            parent.listen()?;
            alert::raise_held();
            parent.tell()?;
            parent.listen()?;
            alert::release(n, "the other task")?;
            parent.tell()?;
        }
        alert::end(event)
    })?;
    let event = alert::begin(Bescr(0))?;
    for n in 0..50 {
        alert::raise_held();
        other.tell()?;
        other.listen()?;
        if n % 2 == 0 {
            alert::release(n, "before the other")?;
        }
        other.tell()?;
        other.listen()?;
        alert::on();
        alert::expect_total(n + 1, "after the other")?;
    }
    alert::end(event)?;
    other.join()
}

/// Checks that a child gets nothing of its parent's alert, even with an event of its own.
fn child_without() -> Outcome {
    let bescr = Bescr::read();
    check!(bescr == Bescr(0), "the child's {bescr:?}");
    let event = alert::begin(Bescr::GE | Bescr::PME)?;
    alert::expect_none("in the child")?;
    alert::due_in(1000);
    alert::expect_total(1, "the child's own")?;
    alert::end(event)
}

fn held_over_fork() -> Outcome {
    let event = alert::begin(Bescr(0))?;
    for n in 0..10 {
        alert::raise_held();
        let child = Peer::spawn(|_| child_without())?;
        // In one round the child is first, in the next the parent.
        if n % 2 == 0 {
            child.join()?;
            alert::release(n, "after the child")?;
        } else {
            alert::release(n, "before the child")?;
            child.join()?;
        }
    }
    alert::end(event)
}

/// Does `action` with alerts at many moments, with [`alert::sweep`], and fails if it failed once.
fn sweep(steps: u32, what: &str, mut action: impl FnMut() -> Outcome) -> Outcome {
    let mut outcome = Ok(());
    alert::sweep(steps, what, || {
        if let Err(why) = action() {
            outcome = Err(why);
        }
    })?;
    outcome
}

/// The alert comes at any moment of a fork and of the child's end.
fn in_forks() -> Outcome {
    sweep(100, "fork", || {
        let child = Peer::spawn(|_| {
            let bescr = Bescr::read();
            check!(bescr == Bescr(0), "the child's {bescr:?}");
            Ok(())
        })?;
        child.join()
    })
}

fn held_over_thread_start() -> Outcome {
    let event = alert::begin(Bescr(0))?;
    alert::raise_held();
    process::in_thread(child_without)?;
    alert::release(0, "after the thread")?;
    alert::end(event)
}

/// Starts a neighbour on each of two CPUs, and moves the caller to the first.
fn two_neighbours() -> Result<([usize; 2], [Neighbour; 2]), Failure> {
    let cpus = cpu::two()?;
    cpu::pin_to(cpus[0])?;
    let neighbours = [
        Neighbour::spawn(cpus[0], Kind::Expecting)?,
        Neighbour::spawn(cpus[1], Kind::Expecting)?,
    ];
    Ok((cpus, neighbours))
}

/// The task moves to another CPU, or there and back, while GE is off.
fn held_over_migration() -> Outcome {
    let (cpus, neighbours) = two_neighbours()?;
    let event = alert::begin(Bescr(0))?;
    let mut at = 0;
    for n in 0..60 {
        alert::raise_held();
        for _ in 0..=n % 3 {
            at = 1 - at;
            cpu::pin_to(cpus[at])?;
            if n % 2 == 0 {
                process::give_way();
            }
        }
        alert::release(n, "after a migration")?;
    }
    alert::end(event)?;
    neighbours.into_iter().try_for_each(Neighbour::join)
}

/// The alert comes at any moment of a migration.
fn in_migrations() -> Outcome {
    let (cpus, neighbours) = two_neighbours()?;
    let mut at = 0;
    sweep(200, "migration", || {
        at = 1 - at;
        Ok(cpu::pin_to(cpus[at])?)
    })?;
    neighbours.into_iter().try_for_each(Neighbour::join)
}

ktap::main! {
    first: session::require_ebb;
    held_beside_a_plain_task = held_beside(Kind::Plain),
    held_beside_a_counting_task = held_beside(Kind::Counting),
    held_beside_an_ebb_task = held_beside(Kind::Expecting),
    in_switches_to_a_plain_task = in_switches_beside(Kind::Plain),
    in_switches_to_a_counting_task = in_switches_beside(Kind::Counting),
    in_switches_to_an_ebb_task = in_switches_beside(Kind::Expecting),
    // The neighbour has GE off half of the time.
    in_switches_to_a_guarded_task = in_switches_beside(Kind::Guarding),
    two_tasks_hold_one_each, held_over_fork, in_forks, held_over_thread_start, held_over_migration,
    in_migrations,
}

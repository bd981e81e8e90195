// SPDX-License-Identifier: GPL-2.0
//! An event is turned off and on or closed, by its own task or by others, or the
//! task ends, while EBBs come as fast as they can. What may not be is an EBB without
//! an event, one for somebody else, or none any more when all is quiet again.
//!
//! A task whose event others take away loses its registers in the middle of a
//! handler, which is no fault.

use ebb::EbbContext;
use ebb::Event;
use ebb::Pmc;
use ebb::pmc;
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
use ktap::process::Peer;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::Ordering::SeqCst;

const PERIOD: u32 = 1000;

/// Opens an event on the thread `id`, enabled.
fn put_on(id: libc::pid_t) -> Result<Event, Failure> {
    let event = ebb::event(CYCLES).pid(id).open().or_fail("open")?;
    event.enable().or_fail("enable")?;
    Ok(event)
}

/// Number of the calling thread.
fn own_id() -> libc::pid_t {
    // SAFETY: a system call without pointers.
    unsafe { libc::gettid() }
}

/// Arms the counter, whatever was before; does nothing while there is no event.
fn arm() -> Outcome {
    pmc::freeze();
    ebb::start(Pmc::Pmc1, PERIOD).or_fail("start")?;
    ebb::enable().or_fail("enable")?;
    Mmcr0::PMAE.write();
    Ok(())
}

/// The overflow comes at any moment of `switch`, system calls that take the event
/// from the PMU and put it back. An EBB without the event would trap: its handler
/// writes registers.
fn at_any_moment_of(switch: fn(&Event) -> Outcome) -> Outcome {
    let event = session::prepare(CYCLES, session::count_only)?;
    for period in (50..8000).step_by(13) {
        let before = ebb::count();
        pmc::freeze();
        ebb::start(Pmc::Pmc1, period).or_fail("start")?;
        ebb::enable().or_fail("enable")?;
        Mmcr0::PMAE.write();
        switch(&event)?;
        session::wait_for(before + 1, period)?;
        check!(ebb::spurious() == 0, "{} spurious EBBs", ebb::spurious());
    }
    session::end(event);
    Ok(())
}

fn disabled_by_itself() -> Outcome {
    at_any_moment_of(|event| {
        event.disable().or_fail("disable")?;
        session::work();
        event.enable().or_fail("enable")
    })
}

fn disabled_by_prctl_of_its_own() -> Outcome {
    at_any_moment_of(|_| {
        ebb::disable_all().or_fail("disable all")?;
        session::work();
        ebb::enable_all().or_fail("enable all")
    })
}

/// Closed with EBBs on, and another one opened.
fn closed_by_itself() -> Outcome {
    for period in (50..8000).step_by(37) {
        let event = session::begin(CYCLES, period, session::count_only)?;
        event.close();
        let before = ebb::count();
        for _ in 0..3 {
            session::work();
        }
        check!(ebb::count() == before, "an EBB after close, {period}");
        ebb::disable();
    }
    Ok(())
}

/// The event counts on one CPU only, and the task moves away and back at any moment
/// before its EBB: on the other CPU it has neither access nor EBBs.
fn bound_to_a_cpu() -> Outcome {
    let [here, there] = cpu::two()?;
    cpu::pin_to(here)?;
    let event = ebb::event(CYCLES)
        .cpu(libc::c_int::try_from(here).or_fail("CPU")?)
        .open()
        .or_fail("open")?;
    // SAFETY: the handler does nothing.
    unsafe { ebb::install(session::count_only) }.or_fail("install")?;
    event.enable().or_fail("enable")?;
    event.check_scheduled().or_fail("schedule")?;
    for period in (50..8000).step_by(53) {
        let before = ebb::count();
        pmc::freeze();
        // One EBB, and the next one a long time after it.
        Pmc::Pmc1.write(Pmc::start_value(period));
        ebb::set_period(Pmc::Pmc1, 1 << 30).or_fail("period")?;
        ebb::enable().or_fail("enable")?;
        Mmcr0::PMAE.write();
        cpu::pin_to(there)?;
        let away = ebb::count();
        session::expect_none(10_000)?;
        check!(traps(trap::write_pmc1)?, "access without the event");
        check!(ebb::count() == away, "an EBB without the event");
        cpu::pin_to(here)?;
        session::wait_for(before + 1, period)?;
        session::expect_none(10_000)?;
    }
    session::end(event);
    Ok(())
}

/// What two threads tell each other.
static THREAD: AtomicU32 = AtomicU32::new(0);
static QUIET: AtomicBool = AtomicBool::new(false);
static SEEN: AtomicBool = AtomicBool::new(false);
static END: AtomicBool = AtomicBool::new(false);

/// Takes EBBs with an event that comes and goes. Once told that the event is gone
/// it looks whether any EBB still comes; once told that it is there, whether they
/// do.
fn take_what_comes() -> Outcome {
    trap::step_over_all()?;
    // SAFETY: the handler does nothing.
    unsafe { ebb::install(session::count_only) }.or_fail("install")?;
    THREAD.store(own_id().unsigned_abs(), SeqCst);
    while !END.load(SeqCst) {
        arm()?;
        for _ in 0..5 {
            session::work();
        }
        if QUIET.load(SeqCst) && !SEEN.load(SeqCst) {
            session::expect_none(10 * u64::from(PERIOD))?;
            SEEN.store(true, SeqCst);
        }
    }
    ebb::disable();
    Ok(())
}

/// Waits until the other thread has looked for EBBs without an event.
fn let_it_look() {
    SEEN.store(false, SeqCst);
    QUIET.store(true, SeqCst);
    while !SEEN.load(SeqCst) && !END.load(SeqCst) {
        process::give_way();
    }
    QUIET.store(false, SeqCst);
}

/// Runs [`take_what_comes`] in a thread, and `meddle` with its number in this one.
fn beside(meddle: fn(libc::pid_t) -> Outcome) -> Outcome {
    let thread = std::thread::spawn(|| {
        let result = take_what_comes();
        END.store(true, SeqCst);
        result
    });
    while THREAD.load(SeqCst) == 0 {
        process::give_way();
    }
    let result = meddle(THREAD.load(SeqCst).cast_signed());
    END.store(true, SeqCst);
    thread.join().map_err(|_| "panic").or_fail("thread")??;
    result
}

/// Some time, of a length that is another one each turn.
fn pass(turn: u32) {
    for _ in 0..turn * 7 % 23 {
        session::work();
    }
}

fn disabled_by_another() -> Outcome {
    beside(|id| {
        let event = put_on(id)?;
        for turn in 0..300 {
            pass(turn);
            event.disable().or_fail("disable")?;
            if turn % 30 == 0 {
                let_it_look();
            }
            pass(turn + 1);
            event.enable().or_fail("enable")?;
        }
        Ok(())
    })
}

/// All events of the thread that opened them, which are on another thread.
fn disabled_by_prctl_of_another() -> Outcome {
    beside(|id| {
        let event = put_on(id)?;
        for turn in 0..300 {
            pass(turn);
            ebb::disable_all().or_fail("disable all")?;
            if turn % 30 == 0 {
                let_it_look();
            }
            pass(turn + 1);
            ebb::enable_all().or_fail("enable all")?;
        }
        check!(event.is_scheduled().or_fail("read")?, "not scheduled");
        Ok(())
    })
}

fn closed_by_another() -> Outcome {
    beside(|id| {
        for turn in 0..300 {
            let event = put_on(id)?;
            pass(turn);
            event.close();
            if turn % 30 == 0 {
                let_it_look();
            }
        }
        Ok(())
    })
}

/// Two events of different threads on one target: they exclude each other, and the
/// one that is left takes over.
fn two_on_one() -> Outcome {
    beside(|id| {
        for turn in 0..100 {
            let first = put_on(id)?;
            pass(turn);
            let second = put_on(id)?;
            pass(turn + 1);
            match turn % 2 {
                0 => first.close(),
                _ => second.close(),
            }
            pass(turn + 2);
        }
        let_it_look();
        Ok(())
    })
}

/// EBBs of the bystander whose own counter was not the cause.
static FOREIGN: AtomicU64 = AtomicU64::new(0);

fn own_only(context: &mut EbbContext<'_>) {
    if !context.overflowed(Pmc::Pmc2) || context.overflowed(Pmc::Pmc1) {
        FOREIGN.fetch_add(1, Relaxed);
    }
}

/// Takes EBBs on another counter until told to end, and loses none.
fn bystander(parent: &mut Link) -> Outcome {
    let event = session::begin(0x2001e, 3000, own_only)?;
    parent.tell()?;
    while !parent.is_told() {
        let n = ebb::count();
        session::wait_for(n + 5, 3000)?;
    }
    let foreign = FOREIGN.load(Relaxed);
    check!(foreign == 0, "{foreign} foreign EBBs");
    check!(ebb::spurious() == 0, "{} spurious EBBs", ebb::spurious());
    session::end(event);
    Ok(())
}

/// Tasks on the bystander's CPU end in all possible ways while EBBs of theirs are
/// due.
fn ends_beside_a_bystander() -> Outcome {
    cpu::pin()?;
    let mut witness = Peer::spawn(bystander)?;
    witness.listen()?;
    for turn in 0..60 {
        let mut mortal = Peer::spawn(|parent| {
            trap::step_over_all()?;
            let event = session::begin(CYCLES, PERIOD, session::count_only)?;
            parent.tell()?;
            pass(turn);
            match turn % 4 {
                0 => event.close(),
                1 => std::mem::forget(event),
                // Waits to be killed.
                _ => loop {
                    session::work();
                },
            }
            Ok(())
        })?;
        mortal.listen()?;
        if turn % 4 < 2 {
            mortal.join()?;
        } else {
            process::give_way();
            drop(mortal);
        }
    }
    witness.tell()?;
    witness.join()
}

ktap::main! {
    first: session::require_ebb;
    disabled_by_itself, disabled_by_prctl_of_its_own, closed_by_itself, bound_to_a_cpu,
    disabled_by_another, disabled_by_prctl_of_another, closed_by_another, two_on_one,
    ends_beside_a_bystander,
}

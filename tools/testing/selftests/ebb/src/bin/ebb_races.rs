// SPDX-License-Identifier: GPL-2.0
//! An event is disabled and enabled or closed, by its own task or by others, or the task ends,
//! while EBBs come as often as possible. No EBB may come without an event or to another task, and
//! EBBs must come again when the changes have ended.
//!
//! A task whose event others take away loses access to its registers in the middle of a handler.
//! That is no failure.

use ebb::Event;
use ebb::Pmc;
use ebb::pmc;
use ebb::reg::Mmcr0;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ebb_selftests::session::put_on;
use ebb_selftests::trap;
use ebb_selftests::trap::traps;
use ktap::Outcome;
use ktap::check;
use ktap::cpu;
use ktap::process;
use ktap::process::Link;
use ktap::process::Peer;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

const PERIOD: u32 = 1000;

/// Returns the number of the calling thread.
fn own_id() -> libc::pid_t {
    // SAFETY: The system call takes no pointers.
    unsafe { libc::gettid() }
}

/// Call that takes an event off the PMU, or puts it back.
type Switch = fn(&Event) -> perf_event::Result<()>;
const BY_IOCTL: [Switch; 2] = [Event::disable, Event::enable];
const BY_PRCTL: [Switch; 2] = [|_| ebb::disable_all(), |_| ebb::enable_all()];

/// The overflow comes at any moment of the two calls. An EBB without the event would trap, as its
/// handler writes registers.
fn disabled_by_itself([off, on]: [Switch; 2]) -> Outcome {
    let event = session::prepare(CYCLES, session::count_only)?;
    for period in (50..8000).step_by(13) {
        let before = ebb::count();
        session::arm(period)?;
        off(&event)?;
        session::work();
        on(&event)?;
        session::wait_for(before + 1, period)?;
    }
    session::end(event)
}

/// An event is closed with EBBs on, and another one is opened.
fn closed_by_itself() -> Outcome {
    for period in (50..8000).step_by(37) {
        let event = session::cycles(period)?;
        event.close();
        let before = ebb::count();
        session::work_for(3_000);
        check!(ebb::count() == before, "an EBB after close, {period}");
        ebb::disable();
    }
    Ok(())
}

/// The event counts on one CPU only, and the task moves to another CPU and back at any moment
/// before its EBB. On the other CPU it has neither access nor EBBs.
fn bound_to_a_cpu() -> Outcome {
    let [here, there] = cpu::two()?;
    cpu::pin_to(here)?;
    let event = session::on_this_cpu()?;
    for period in (50..8000).step_by(53) {
        let before = ebb::count();
        pmc::freeze();
        // One EBB, and the next one a long time after it.
        Pmc::Pmc1.write(Pmc::start_value(period));
        ebb::set_period(Pmc::Pmc1, 1 << 30)?;
        ebb::enable()?;
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
    session::end(event)
}

/// State that two threads share: the thread with EBBs, whether there is no event now, whether that
/// thread has checked that no EBB comes, and whether to end.
static THREAD: AtomicU32 = AtomicU32::new(0);
static QUIET: AtomicBool = AtomicBool::new(false);
static SEEN: AtomicBool = AtomicBool::new(false);
static END: AtomicBool = AtomicBool::new(false);

/// Takes EBBs of an event that another thread opens and closes. When `QUIET` is set there is no
/// event, and the function checks that no EBB comes.
fn take_what_comes() -> Outcome {
    trap::step_over_all()?;
    session::install(session::count_only)?;
    THREAD.store(own_id().unsigned_abs(), SeqCst);
    while !END.load(SeqCst) {
        // These calls do nothing while there is no event.
        session::arm(PERIOD)?;
        session::work_for(5_000);
        if QUIET.load(SeqCst) && !SEEN.load(SeqCst) {
            session::expect_none(10 * u64::from(PERIOD))?;
            SEEN.store(true, SeqCst);
        }
    }
    ebb::disable();
    check!(ebb::count() >= FEWEST, "only {} EBBs came", ebb::count());
    Ok(())
}

/// Fewest EBBs that the other thread must have taken in all turns with an event.
const FEWEST: u64 = 100;

/// Waits until the other thread has checked that no EBB comes without an event.
fn let_it_look() {
    SEEN.store(false, SeqCst);
    QUIET.store(true, SeqCst);
    while !SEEN.load(SeqCst) && !END.load(SeqCst) {
        process::give_way();
    }
    QUIET.store(false, SeqCst);
}

/// Runs [`take_what_comes`] in a thread, and `meddle` with its number in this one.
fn beside(meddle: impl FnOnce(libc::pid_t) -> Outcome) -> Outcome {
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
    match thread.join() {
        Ok(outcome) => outcome.and(result),
        Err(_) => ktap::fail("the thread panicked"),
    }
}

/// Works for a time that differs in each turn.
fn pass(turn: u64) {
    session::work_for(1000 * (turn * 7 % 23));
}

/// In some turns, lets the other thread run on this CPU while it has the event.
fn let_it_take(turn: u64) {
    if turn % 5 == 1 {
        process::give_way();
    }
}

/// The event on another thread belongs to the thread that opened it, for prctl too.
fn disabled_by_another([off, on]: [Switch; 2]) -> Outcome {
    beside(|id| {
        let event = put_on(id)?;
        for turn in 0..300 {
            pass(turn);
            off(&event)?;
            if turn % 30 == 0 {
                let_it_look();
            }
            pass(turn + 1);
            on(&event)?;
            let_it_take(turn);
        }
        Ok(event.check_scheduled()?)
    })
}

fn closed_by_another() -> Outcome {
    beside(|id| {
        for turn in 0..300 {
            let event = put_on(id)?;
            let_it_take(turn);
            pass(turn);
            event.close();
            if turn % 30 == 0 {
                let_it_look();
            }
        }
        Ok(())
    })
}

/// Two threads' events on one target exclude each other; when one is closed the other is scheduled.
fn two_on_one() -> Outcome {
    beside(|id| {
        for turn in 0..100 {
            let first = put_on(id)?;
            let_it_take(turn);
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

/// Takes EBBs on another counter until the parent sends a message, and checks that none is lost.
fn bystander(parent: &mut Link) -> Outcome {
    let event = session::prepare_own(0x2001e)?;
    ebb::start(Pmc::Pmc2, 3000)?;
    ebb::enable()?;
    pmc::unfreeze();
    parent.tell()?;
    while !parent.is_told() {
        session::wait_for(ebb::count() + 5, 3000)?;
    }
    session::check_own()?;
    session::end(event)
}

/// Tasks on the bystander's CPU end in all possible ways while EBBs of theirs are pending.
fn ends_beside_a_bystander() -> Outcome {
    cpu::pin()?;
    let mut witness = Peer::spawn(bystander)?;
    witness.listen()?;
    for turn in 0..60 {
        let mut mortal = Peer::spawn(|parent| {
            trap::step_over_all()?;
            let event = session::cycles(PERIOD)?;
            parent.tell()?;
            pass(turn);
            match turn % 4 {
                0 => event.close(),
                1 => std::mem::forget(event),
                // Works until it is killed.
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
    witness.tell_and_join()
}

ktap::main! {
    first: session::require_ebb;
    disabled_by_itself = disabled_by_itself(BY_IOCTL),
    disabled_by_prctl_of_its_own = disabled_by_itself(BY_PRCTL),
    closed_by_itself, bound_to_a_cpu,
    disabled_by_another = disabled_by_another(BY_IOCTL),
    disabled_by_prctl_of_another = disabled_by_another(BY_PRCTL),
    closed_by_another, two_on_one, ends_beside_a_bystander,
}

// SPDX-License-Identifier: GPL-2.0
//! A signal at each instruction of the library's entries, whose handler pauses and resumes the
//! session.

use ebb::EbbContext;
use ebb::Handler;
use ebb::Pmc;
use ebb::Rearm;
use ebb::Save;
use ebb::Session;
use ebb::State;
use ebb::pmc::OVERFLOW;
use ebb::reg::Bescr;
use ebb_selftests::each_instruction::Entry;
use ebb_selftests::each_instruction::expect;
use ebb_selftests::each_instruction::until_hit;
use ebb_selftests::each_instruction::wait_until_hit;
use ebb_selftests::session;
use ktap::Failure;
use ktap::Outcome;
use ktap::check;
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

const PERIOD: u32 = 3_000;

/// The session that signals' handlers are about.
static SESSION: AtomicPtr<Session> = AtomicPtr::new(ptr::null_mut());

/// It, and the entry that calls its handler.
fn begin(
    save: Save,
    handler: Handler,
    flags: libc::c_int,
) -> Result<(Box<Session>, Entry), Failure> {
    // SAFETY: the handlers here use general registers only.
    unsafe { ebb::install_saving(save, handler)? };
    let entry = Entry::find(flags)?;
    let session = Box::new(Session::open("cycles", PERIOD.into())?);
    SESSION.store(ptr::from_ref(&*session).cast_mut(), Relaxed);
    // SAFETY: as before.
    unsafe { session.start(save, handler)? };
    Ok((session, entry))
}

/// For actions.
fn session() -> &'static Session {
    // SAFETY: `begin` has put it there, and it lives as long as there are EBBs.
    unsafe { &*SESSION.load(Relaxed) }
}

fn resume() {
    expect(session().resume().is_ok(), line!());
    expect(session().state() == State::Running, line!());
    expect(!Bescr::read().has(Bescr::GE), line!());
}

fn pause_and_resume() {
    expect(session().pause().is_ok(), line!());
    expect(session().state() == State::Paused, line!());
    resume();
}

fn expect_state(state: State) -> Outcome {
    let found = session().state();
    check!(found == state, "{found:?} instead of {state:?}");
    Ok(())
}

/// EBBs go on.
fn paused(save: Save, flags: libc::c_int) -> Outcome {
    let (session, entry) = begin(save, session::count_only, flags)?;
    entry.at_each(pause_and_resume, entry.all(), 0, until_hit, |_| {
        expect_state(State::Running)?;
        session::wait_for(ebb::count() + 3, PERIOD)
    })?;
    session.close();
    Ok(())
}

fn stop(context: &mut EbbContext<'_>) {
    context.rearm(Rearm::Stop);
}

/// What the handler has asked for holds, unless the signal is later.
fn stopped(save: Save, flags: libc::c_int) -> Outcome {
    let (session, entry) = begin(save, stop, flags)?;
    let before = Cell::new(0);
    let resumed_until_hit = || {
        before.set(ebb::count());
        session.resume()?;
        wait_until_hit()
    };
    // The three that call the routine to reload.
    entry.at_each(resume, entry.all(), 3, resumed_until_hit, |n| {
        if n > entry.call() {
            session::wait_for(before.get() + 2, PERIOD)?;
        }
        session::expect_none(3 * u64::from(PERIOD))?;
        expect_state(State::Paused)
    })?;
    session.close();
    Ok(())
}

/// Whether the next handler is to leave a counter negative that no event uses.
static OVERFLOWN: AtomicBool = AtomicBool::new(false);

/// Does so; tells whether it did.
fn overflow_once() -> bool {
    Pmc::Pmc3.write(0);
    let once = OVERFLOWN.swap(false, Relaxed);
    if once {
        Pmc::Pmc1.write(Pmc::start_value(PERIOD));
        Pmc::Pmc3.write(OVERFLOW);
    }
    once
}

fn keep(context: &mut EbbContext<'_>) {
    if overflow_once() {
        context.rearm(Rearm::Keep);
    }
}

/// As a signal's handler does on top of it.
fn disable(_: &mut EbbContext<'_>) {
    if overflow_once() {
        ebb::disable();
    }
}

fn ask() {
    expect(session().state() == State::Running, line!());
}

/// The counter stays as the handler has left it, unless they run already.
fn kept(save: Save, flags: libc::c_int) -> Outcome {
    let (session, entry) = begin(save, keep, flags)?;
    let before = Cell::new(0);
    let kept_until_hit = || {
        before.set(ebb::count());
        OVERFLOWN.store(true, Relaxed);
        until_hit()
    };
    let counters_run = entry.rfebb() - 2..entry.rfebb();
    entry.at_each(ask, entry.all(), 0, kept_until_hit, |n| {
        let value = Pmc::Pmc3.read();
        // Hardware takes that for an overflow, QEMU does not.
        let kept = value >= OVERFLOW || ebb::count() > before.get() + 1;
        check!(kept || counters_run.contains(&n), "{value:#x}");
        session::wait_for(ebb::count() + 3, PERIOD)
    })?;
    session.close();
    Ok(())
}

/// Who goes on reloads the counter, also where the entry has left it.
fn disabled(save: Save, flags: libc::c_int) -> Outcome {
    let (session, entry) = begin(save, disable, flags)?;
    let disabled_until_hit = || {
        OVERFLOWN.store(true, Relaxed);
        session.resume()?;
        wait_until_hit()
    };
    // The three that call the routine to reload.
    entry.at_each(resume, entry.all(), 3, disabled_until_hit, |n| {
        if n <= entry.call() {
            session.resume()?;
        }
        let value = Pmc::Pmc3.read();
        check!(value < OVERFLOW, "{value:#x}");
        expect_state(State::Running)?;
        session::wait_for(ebb::count() + 3, PERIOD)
    })?;
    session.close();
    Ok(())
}

/// Changes where the program goes on, and back. Has instructions of its own.
#[inline(never)]
fn move_there_and_back(context: &mut EbbContext<'_>) {
    let address = context.interrupted();
    // SAFETY: the second address is the one that was interrupted.
    unsafe {
        context.set_interrupted(address + 4);
        context.set_interrupted(address);
    }
}

/// In the middle of that the signal's handler finds the EBB in progress.
fn moved(save: Save, flags: libc::c_int) -> Outcome {
    // Before there are EBBs, for the copy of its page.
    let handler = Entry::function(move_there_and_back as *const () as usize, flags)?;
    let (session, _) = begin(save, move_there_and_back, flags)?;
    handler.at_each(pause_and_resume, handler.all(), 0, until_hit, |_| {
        expect_state(State::Running)?;
        session::wait_for(ebb::count() + 3, PERIOD)
    })?;
    session.close();
    Ok(())
}

/// All of `test`, on the stack of the program and one of the signal's own.
fn both(test: fn(Save, libc::c_int) -> Outcome, save: Save) -> Outcome {
    test(save, 0)?;
    test(save, libc::SA_ONSTACK)
}

ktap::main! {
    first: session::require_ebb;
    paused_gprs = both(paused, Save::Gprs), paused_full = both(paused, Save::Full),
    kept_gprs = both(kept, Save::Gprs), kept_full = both(kept, Save::Full),
    disabled_gprs = both(disabled, Save::Gprs), disabled_full = both(disabled, Save::Full),
    stopped_gprs = both(stopped, Save::Gprs), stopped_full = both(stopped, Save::Full),
    moved_gprs = both(moved, Save::Gprs), moved_full = both(moved, Save::Full),
}

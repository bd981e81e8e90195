// SPDX-License-Identifier: GPL-2.0
//! A signal at each instruction of the library's entries, whose handler calls the library, forks,
//! jumps out, or follows the frames.

use ebb::EbbContext;
use ebb::Error;
use ebb::Event;
use ebb::Handler;
use ebb::Owner;
use ebb::Pmc;
use ebb::Rearm;
use ebb::Save;
use ebb::pmc;
use ebb::reg::Bescr;
use ebb::reg::Mmcr0;
use ebb_selftests::callers;
use ebb_selftests::each_instruction::Action;
use ebb_selftests::each_instruction::Entry;
use ebb_selftests::each_instruction::expect;
use ebb_selftests::each_instruction::until_hit;
use ebb_selftests::each_instruction::wait_until_hit;
use ebb_selftests::escape;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ktap::Failure;
use ktap::Outcome;
use ktap::check;
use pmu_selftests::machine;
use std::cell::Cell;
use std::io;
use std::ptr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

const PERIOD: u32 = 3_000;

/// Instructions until the interrupted address is in memory: stdu, stdu, std, mfspr, std.
const EBBRR_IS_SAVED: usize = 5;

/// Those behind the last that writes EBBRR, but for rfebb: ld, mtspr, ld, addi.
const AFTER_EBBRR: usize = 4;

/// An EBB event, its handler, and the entry that calls it.
fn begin(save: Save, handler: Handler, flags: libc::c_int) -> Result<(Event, Entry), Failure> {
    let event = ebb::event(CYCLES).open()?;
    // SAFETY: the handlers below use general registers only.
    unsafe { ebb::install_saving(save, handler)? };
    event.enable()?;
    event.check_scheduled()?;
    let entry = Entry::find(flags)?;
    pmc::freeze();
    ebb::start(Pmc::Pmc1, PERIOD.into())?;
    ebb::enable()?;
    pmc::unfreeze();
    Ok((event, entry))
}

fn goes_on() -> Outcome {
    session::wait_for(ebb::count() + 3, PERIOD)
}

fn stands() -> Outcome {
    let bescr = Bescr::read();
    check!(!bescr.has(Bescr::PME), "{bescr:?}");
    session::expect_none(3 * u64::from(PERIOD))
}

fn ge_is_off() {
    expect(!Bescr::read().has(Bescr::GE), line!());
}

/// EBBs go on, and none comes on top.
fn enabled(save: Save, flags: libc::c_int, action: Action) -> Outcome {
    let (event, entry) = begin(save, session::count_only, flags)?;
    entry.at_each(action, entry.all(), 0, until_hit, |_| goes_on())?;
    session::end(event)
}

fn enable() {
    expect(ebb::enable().is_ok(), line!());
    ge_is_off();
}

fn disable_and_enable() {
    ebb::disable();
    ge_is_off();
    enable();
}

fn disable() {
    ebb::disable();
    ge_is_off();
    expect(ebb::inject() == Err(Error::InProgress), line!());
}

/// No EBB comes until `resume`.
fn disabled(save: Save, flags: libc::c_int) -> Outcome {
    let (event, entry) = begin(save, session::count_only, flags)?;
    entry.at_each(disable, entry.all(), 0, until_hit, |n| {
        stands()?;
        if n < entry.rfebb() {
            let mmcr0 = Mmcr0::read();
            check!(mmcr0 == Mmcr0::FC, "not frozen: {mmcr0:?}");
        }
        ebb::resume()?;
        goes_on()
    })?;
    session::end(event)
}

fn uninstall() {
    expect(ebb::uninstall().is_ok(), line!());
    ge_is_off();
}

/// No EBB comes, and the next owner's do.
fn uninstalled(save: Save, flags: libc::c_int) -> Outcome {
    let (event, entry) = begin(save, session::count_only, flags)?;
    let enabled_until_hit = || match ebb::enable() {
        // The EBB came at once, and the signal.
        Err(ebb::Error::NotInstalled) => Ok(()),
        done => done.map_err(Into::into).and_then(|()| wait_until_hit()),
    };
    entry.at_each(uninstall, entry.all(), 0, enabled_until_hit, |_| {
        check!(ebb::owner() == Owner::Nobody, "{:?}", ebb::owner());
        Pmc::Pmc1.write(Pmc::start_value(100));
        Mmcr0::PMAE.write();
        stands()?;
        // SAFETY: as in `begin`.
        unsafe { ebb::install_saving(save, session::count_only)? };
        session::arm(PERIOD)?;
        goes_on()
    })?;
    session::end(event)
}

fn stop(context: &mut EbbContext<'_>) {
    context.rearm(Rearm::Stop);
}

fn resume() {
    expect(ebb::resume().is_ok(), line!());
    ge_is_off();
}

/// What the handler has asked for holds, unless the signal is later.
fn resumed(save: Save, flags: libc::c_int) -> Outcome {
    let (event, entry) = begin(save, stop, flags)?;
    let before = Cell::new(0);
    let resumed_until_hit = || {
        before.set(ebb::count());
        ebb::resume()?;
        wait_until_hit()
    };
    // The three that call the routine to reload.
    entry.at_each(resume, entry.all(), 3, resumed_until_hit, |n| {
        if n > entry.call() {
            session::wait_for(before.get() + 2, PERIOD)?;
        }
        stands()
    })?;
    session::end(event)
}

fn jump() {
    // SAFETY: `until_jumped` runs in `call_escapable`.
    unsafe { escape::escape() };
}

extern "C" fn until_jumped() {
    let _ = until_hit();
}

/// Jumps out of the signal's handler.
fn jumped_out() -> Outcome {
    // SAFETY: nothing in `until_jumped` has to be dropped.
    let jumped = unsafe { escape::call_escapable(until_jumped) };
    check!(jumped == 1, "no jump, {} EBBs", ebb::count());
    Ok(())
}

/// EBBs come back on, also after `disable`.
fn jumped(save: Save, flags: libc::c_int) -> Outcome {
    let (event, entry) = begin(save, session::count_only, flags)?;
    for disabled in [false, true] {
        entry.at_each(jump, entry.all(), 0, jumped_out, |_| {
            let bescr = Bescr::read();
            check!(!bescr.has(Bescr::GE), "{bescr:?} after the jump");
            if disabled {
                ebb::disable();
            }
            ebb::enable()?;
            goes_on()
        })?;
    }
    session::end(event)
}

/// The same of a session.
fn session_after_jump(save: Save) -> Outcome {
    // SAFETY: the handler does nothing.
    unsafe { ebb::install_saving(save, session::count_only)? };
    let entry = Entry::find(0)?;
    let session = ebb::Session::open("cycles", PERIOD.into())?;
    // SAFETY: as before.
    unsafe { session.start(save, session::count_only)? };
    entry.at_each(jump, entry.all(), 0, jumped_out, |n| {
        let state = session.state();
        check!(state == ebb::State::Paused, "{state:?}");
        if n % 2 == 0 {
            session.pause()?;
        }
        session.resume()?;
        let state = session.state();
        check!(state == ebb::State::Running, "{state:?}");
        goes_on()
    })?;
    session.close();
    Ok(())
}

/// The child of the last fork, 0 in that.
static CHILD: AtomicU64 = AtomicU64::new(0);

fn fork() {
    // SAFETY: there is one thread only.
    CHILD.store(unsafe { libc::fork() } as u64, Relaxed);
}

/// What the child of a fork does after that: it has come back from the handler, has no EBBs, and
/// takes its own.
fn in_child() -> Outcome {
    session::work();
    check!(!Bescr::read().has(Bescr::PME), "{:?}", Bescr::read());
    check!(ebb::owner() == Owner::Gone, "{:?}", ebb::owner());
    let own = session::cycles(PERIOD)?;
    goes_on()?;
    session::end(own)
}

/// Parent and child go on.
fn after_fork() -> Outcome {
    let child = CHILD.load(Relaxed) as libc::pid_t;
    if child == 0 {
        let done = in_child();
        if let Err(Failure::Fail(why)) = &done {
            println!("in the child: {why}");
        }
        // SAFETY: a system call without pointers.
        unsafe { libc::_exit(done.is_err().into()) };
    }
    let mut status = -1;
    // SAFETY: the variable lives.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    check!(waited == child, "{}", io::Error::last_os_error());
    check!(status == 0, "the child ended: {status:#x}");
    goes_on()
}

fn forked(save: Save) -> Outcome {
    let (event, entry) = begin(save, session::count_only, 0)?;
    entry.at_each(
        fork,
        EBBRR_IS_SAVED..entry.rfebb() - AFTER_EBBRR,
        0,
        until_hit,
        |_| after_fork(),
    )?;
    session::end(event)
}

fn forked_in_handler(save: Save) -> Outcome {
    let handler = |context: &mut EbbContext<'_>| {
        if context.number() == 3 {
            fork();
        }
    };
    let (event, _) = begin(save, handler, 0)?;
    session::wait_for(3, PERIOD)?;
    after_fork()?;
    session::end(event)
}

/// [`until_hit`] from which unwinders find their way. An EBB that was due, as it may be when the
/// kernel's own work counts, would come in the last instructions of `enable` or the first ones of
/// `wait_until_hit`, from which the compiler tells them a wrong one.
fn armed_until_hit() -> Outcome {
    session::arm(machine::period(PERIOD.into()) as u32)?;
    wait_until_hit()
}

/// The interrupted address is found wherever it is saved, and its callers; else nothing is.
fn unwound(save: Save, flags: libc::c_int) -> Outcome {
    let (event, entry) = begin(save, session::count_only, flags)?;
    entry.at_each(callers::find, entry.all(), 0, armed_until_hit, |n| {
        let found = callers::found();
        if (EBBRR_IS_SAVED..entry.rfebb()).contains(&n) {
            check!(found.ebbrr == 1 && found.behind >= 2, "{found:x?}");
        } else {
            let address = entry.address + 4 * n;
            check!(found.last == address as u64, "{found:x?}");
        }
        Ok(())
    })?;
    session::end(event)
}

/// The same from the routine that reloads the counter.
fn unwound_reload(save: Save, flags: libc::c_int) -> Outcome {
    let (event, _) = begin(save, session::count_only, flags)?;
    let reload = Entry::reload(flags)?;
    reload.at_each(callers::find, reload.all(), 0, armed_until_hit, |_| {
        let found = callers::found();
        check!(found.ebbrr == 1 && found.behind >= 2, "{found:x?}");
        Ok(())
    })?;
    session::end(event)
}

/// Where `walk` has to come to: the stack of who takes the EBBs.
static END: AtomicU64 = AtomicU64::new(0);

fn stack_pointer() -> u64 {
    let r1: u64;
    // SAFETY: reads the stack pointer.
    unsafe { std::arch::asm!("mr {}, 1", out(reg) r1) };
    r1
}

fn walk() {
    let (mut frame, end) = (stack_pointer(), END.load(Relaxed));
    for _ in 0..30 {
        if frame == end {
            return;
        }
        expect(frame != 0 && frame % 16 == 0, line!());
        // SAFETY: each frame has the address of the next one.
        frame = unsafe { *ptr::with_exposed_provenance(frame as usize) };
    }
    expect(false, line!());
}

/// The back chain leads to the interrupted code.
fn chained(save: Save, flags: libc::c_int) -> Outcome {
    END.store(stack_pointer(), Relaxed);
    let (event, entry) = begin(save, session::count_only, flags)?;
    entry.at_each(walk, entry.all(), 0, until_hit, |_| Ok(()))?;
    session::end(event)
}

/// All of `test`, on the stack of the program and one of the signal's own.
fn both(test: fn(Save, libc::c_int) -> Outcome, save: Save) -> Outcome {
    test(save, 0)?;
    test(save, libc::SA_ONSTACK)
}

fn enabled_by(save: Save) -> Outcome {
    both(|save, flags| enabled(save, flags, enable), save)?;
    both(|save, flags| enabled(save, flags, disable_and_enable), save)
}

ktap::main! {
    first: session::require_ebb;
    enabled_gprs = enabled_by(Save::Gprs), enabled_full = enabled_by(Save::Full),
    disabled_gprs = both(disabled, Save::Gprs), disabled_full = both(disabled, Save::Full),
    uninstalled_gprs = both(uninstalled, Save::Gprs),
    uninstalled_full = both(uninstalled, Save::Full),
    resumed_gprs = both(resumed, Save::Gprs), resumed_full = both(resumed, Save::Full),
    jumped_gprs = both(jumped, Save::Gprs), jumped_full = both(jumped, Save::Full),
    session_gprs = session_after_jump(Save::Gprs), session_full = session_after_jump(Save::Full),
    forked_gprs = forked(Save::Gprs), forked_full = forked(Save::Full),
    forked_in_handler_gprs = forked_in_handler(Save::Gprs),
    forked_in_handler_full = forked_in_handler(Save::Full),
    unwound_gprs = both(unwound, Save::Gprs), unwound_full = both(unwound, Save::Full),
    unwound_reload_gprs = both(unwound_reload, Save::Gprs),
    unwound_reload_full = both(unwound_reload, Save::Full),
    chained_gprs = both(chained, Save::Gprs), chained_full = both(chained, Save::Full),
}

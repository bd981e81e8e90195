// SPDX-License-Identifier: GPL-2.0
//! Raises a signal at each instruction of the library's entries. Its handler calls the library,
//! pauses and resumes the session, forks, jumps out, or follows the stack frames.

use ebb::EbbContext;
use ebb::Error;
use ebb::Event;
use ebb::Handler;
use ebb::Owner;
use ebb::Pmc;
use ebb::Rearm;
use ebb::Save;
use ebb::Session;
use ebb::State;
use ebb::pmc;
use ebb::pmc::OVERFLOW;
use ebb::reg::Bescr;
use ebb::reg::Mmcr0;
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
use std::ffi::c_void;
use std::io;
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

const PERIOD: u32 = 3_000;

/// Instructions until the interrupted address is in memory: stdu, stdu, std, mfspr, std.
const EBBRR_IS_SAVED: usize = 5;

/// Instructions between the last one that writes EBBRR and rfebb: ld, mtspr, ld, addi.
const AFTER_EBBRR: usize = 4;

/// Starts EBBs; returns the event and the entry that calls the handler.
fn begin(save: Save, handler: Handler, flags: libc::c_int) -> Result<(Event, Entry), Failure> {
    let event = ebb::event(CYCLES).open()?;
    // SAFETY: The handlers below use general registers only.
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

/// EBBs go on, without an additional one.
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

/// No EBB comes, and the next owner gets its EBBs.
fn uninstalled(save: Save, flags: libc::c_int) -> Outcome {
    let (event, entry) = begin(save, session::count_only, flags)?;
    let enabled_until_hit = || match ebb::enable() {
        // The EBB and the signal came inside `enable`.
        Err(ebb::Error::NotInstalled) => Ok(()),
        done => done.map_err(Into::into).and_then(|()| wait_until_hit()),
    };
    entry.at_each(uninstall, entry.all(), 0, enabled_until_hit, |_| {
        check!(ebb::owner() == Owner::Nobody, "{:?}", ebb::owner());
        Pmc::Pmc1.write(Pmc::start_value(100));
        Mmcr0::PMAE.write();
        stands()?;
        // SAFETY: The handler uses general registers only.
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

/// The handler's request takes effect, unless the signal comes after it was carried out.
fn resumed(save: Save, flags: libc::c_int) -> Outcome {
    let (event, entry) = begin(save, stop, flags)?;
    let before = Cell::new(0);
    let resumed_until_hit = || {
        before.set(ebb::count());
        ebb::resume()?;
        wait_until_hit()
    };
    // `Rearm::Stop` skips the three instructions that call the routine to reload.
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

/// Works until the signal's handler has jumped out.
fn jumped_out() -> Outcome {
    // SAFETY: `until_jumped` has nothing that must be dropped.
    let jumped = unsafe { escape::call_escapable(until_jumped) };
    check!(jumped == 1, "no jump, {} EBBs", ebb::count());
    Ok(())
}

/// After the jump `enable` turns EBBs on again, also after a `disable`.
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

/// A session can be resumed after the jump, also after a `pause`.
fn session_after_jump(save: Save) -> Outcome {
    let (session, entry) = begin_session(save, session::count_only, 0)?;
    entry.at_each(jump, entry.all(), 0, jumped_out, |n| {
        expect_state(State::Paused)?;
        if n % 2 == 0 {
            session.pause()?;
        }
        session.resume()?;
        expect_state(State::Running)?;
        goes_on()
    })?;
    session.close();
    Ok(())
}

/// Child of the last fork; 0 in the child.
static CHILD: AtomicU64 = AtomicU64::new(0);

fn fork() {
    // SAFETY: There is one thread only.
    CHILD.store(unsafe { libc::fork() } as u64, Relaxed);
}

/// Checks the child of a fork: it has returned from the handler, has no EBBs, and can take its own.
fn in_child() -> Outcome {
    session::work();
    check!(!Bescr::read().has(Bescr::PME), "{:?}", Bescr::read());
    check!(ebb::owner() == Owner::Gone, "{:?}", ebb::owner());
    check!(ebb::enable() == Err(Error::Gone) && ebb::inject() == Err(Error::Gone));
    let own = session::cycles(PERIOD)?;
    goes_on()?;
    session::end(own)
}

/// Checks that both parent and child continue.
fn after_fork() -> Outcome {
    let child = CHILD.load(Relaxed) as libc::pid_t;
    if child == 0 {
        let done = in_child();
        if let Err(Failure::Fail(why)) = &done {
            println!("in the child: {why}");
        }
        // SAFETY: The call takes no pointers.
        unsafe { libc::_exit(done.is_err().into()) };
    }
    let mut status = -1;
    // SAFETY: `status` outlives the call.
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

unsafe extern "C" {
    /// The unwinder of libgcc, which `backtrace()` and C++ use.
    fn _Unwind_Backtrace(
        trace: extern "C" fn(*mut c_void, *mut c_void) -> i32,
        argument: *mut c_void,
    ) -> i32;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

/// Results of [`find_callers`]: how often it found the address in EBBRR, how many callers above it,
/// and the last address.
#[derive(Clone, Copy, Debug)]
struct Found {
    interrupted: u64,
    ebbrr: u64,
    callers: u64,
    last: u64,
}

static mut FOUND: Found = Found {
    interrupted: 0,
    ebbrr: 0,
    callers: 0,
    last: 0,
};

extern "C" fn trace(context: *mut c_void, found: *mut c_void) -> i32 {
    // SAFETY: The context is the unwinder's own, and `find_callers` passes the structure.
    let (address, found) = unsafe { (_Unwind_GetIP(context) as u64, &mut *found.cast::<Found>()) };
    if address == 0 {
        return 0;
    }
    if address == found.interrupted {
        found.ebbrr += 1;
    } else if found.ebbrr != 0 {
        found.callers += 1;
    }
    found.last = address;
    0
}

/// Follows the stack frames from a signal's handler on top of an entry.
fn find_callers() {
    let mut found = Found {
        interrupted: session::ebb_registers()[2],
        ebbrr: 0,
        callers: 0,
        last: 0,
    };
    // SAFETY: `trace` keeps no pointer. The unwinder takes a lock, which the interrupted loop does
    // not hold. `FOUND` is read only after the signal's handler has ended.
    unsafe {
        _Unwind_Backtrace(trace, (&raw mut found).cast());
        FOUND = found;
    }
}

/// Does what [`until_hit`] does, but where unwinders can find the callers. If an EBB were pending
/// when EBBs are turned on, as when the kernel's own work counts, it would come in the last
/// instructions of `enable` or the first ones of `wait_until_hit`. There the compiler's unwind
/// tables are wrong.
fn armed_until_hit() -> Outcome {
    session::arm(machine::period(PERIOD.into()) as u32)?;
    wait_until_hit()
}

/// While the interrupted address is saved, the unwinder finds it and its callers; otherwise it
/// finds neither.
fn unwound(save: Save, flags: libc::c_int) -> Outcome {
    let (event, entry) = begin(save, session::count_only, flags)?;
    entry.at_each(find_callers, entry.all(), 0, armed_until_hit, |n| {
        // SAFETY: No signal's handler runs.
        let found = unsafe { FOUND };
        if (EBBRR_IS_SAVED..entry.rfebb()).contains(&n) {
            check!(found.ebbrr == 1 && found.callers >= 2, "{found:x?}");
        } else {
            let address = entry.address + 4 * n;
            check!(found.last == address as u64, "{found:x?}");
        }
        Ok(())
    })?;
    session::end(event)
}

/// The unwinder finds the same from the routine that reloads the counter.
fn unwound_reload(save: Save, flags: libc::c_int) -> Outcome {
    let (event, _) = begin(save, session::count_only, flags)?;
    let reload = Entry::reload(flags)?;
    reload.at_each(find_callers, reload.all(), 0, armed_until_hit, |_| {
        // SAFETY: No signal's handler runs.
        let found = unsafe { FOUND };
        check!(found.ebbrr == 1 && found.callers >= 2, "{found:x?}");
        Ok(())
    })?;
    session::end(event)
}

/// Stack frame at which `walk` must arrive: the one of the function that takes the EBBs.
static END: AtomicU64 = AtomicU64::new(0);

fn stack_pointer() -> u64 {
    let r1: u64;
    // SAFETY: The instruction only reads the stack pointer.
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
        // SAFETY: Each frame begins with the address of the next one.
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

/// Session that the signals' handlers use.
static SESSION: AtomicPtr<Session> = AtomicPtr::new(ptr::null_mut());

/// Starts a session; returns it and the entry that calls its handler.
fn begin_session(
    save: Save,
    handler: Handler,
    flags: libc::c_int,
) -> Result<(Box<Session>, Entry), Failure> {
    // SAFETY: The handlers here use general registers only.
    unsafe { ebb::install_saving(save, handler)? };
    let entry = Entry::find(flags)?;
    let session = Box::new(Session::open("cycles", PERIOD.into())?);
    SESSION.store(ptr::from_ref(&*session).cast_mut(), Relaxed);
    // SAFETY: The handlers here use general registers only.
    unsafe { session.start(save, handler)? };
    Ok((session, entry))
}

/// Returns the session, for actions.
fn session() -> &'static Session {
    // SAFETY: `begin_session` has stored the address, and the session lives as long as there are
    // EBBs.
    unsafe { &*SESSION.load(Relaxed) }
}

fn resume_session() {
    expect(session().resume().is_ok(), line!());
    expect(session().state() == State::Running, line!());
    ge_is_off();
}

fn pause_and_resume() {
    expect(session().pause().is_ok(), line!());
    expect(session().state() == State::Paused, line!());
    resume_session();
}

fn expect_state(state: State) -> Outcome {
    let found = session().state();
    check!(found == state, "{found:?} instead of {state:?}");
    Ok(())
}

/// EBBs go on after a pause and a resume.
fn session_paused(save: Save, flags: libc::c_int) -> Outcome {
    let (session, entry) = begin_session(save, session::count_only, flags)?;
    entry.at_each(pause_and_resume, entry.all(), 0, until_hit, |_| {
        expect_state(State::Running)?;
        goes_on()
    })?;
    session.close();
    Ok(())
}

/// The handler's request to stop takes effect, unless the signal comes after it was carried out.
fn session_stopped(save: Save, flags: libc::c_int) -> Outcome {
    let (session, entry) = begin_session(save, stop, flags)?;
    let before = Cell::new(0);
    let resumed_until_hit = || {
        before.set(ebb::count());
        session.resume()?;
        wait_until_hit()
    };
    // `Rearm::Stop` skips the three instructions that call the routine to reload.
    entry.at_each(resume_session, entry.all(), 3, resumed_until_hit, |n| {
        if n > entry.call() {
            session::wait_for(before.get() + 2, PERIOD)?;
        }
        session::expect_none(3 * u64::from(PERIOD))?;
        expect_state(State::Paused)
    })?;
    session.close();
    Ok(())
}

/// Whether the next handler must leave a counter negative that no event uses.
static OVERFLOWN: AtomicBool = AtomicBool::new(false);

/// Makes that counter negative if requested; returns whether it did.
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

/// Disables EBBs, as a signal's handler on top of this one does.
fn overflow_and_disable(_: &mut EbbContext<'_>) {
    if overflow_once() {
        ebb::disable();
    }
}

fn ask() {
    expect(session().state() == State::Running, line!());
}

/// The counter keeps the handler's value, unless the counters run already.
fn session_kept(save: Save, flags: libc::c_int) -> Outcome {
    let (session, entry) = begin_session(save, keep, flags)?;
    let before = Cell::new(0);
    let kept_until_hit = || {
        before.set(ebb::count());
        OVERFLOWN.store(true, Relaxed);
        until_hit()
    };
    let counters_run = entry.rfebb() - 2..entry.rfebb();
    entry.at_each(ask, entry.all(), 0, kept_until_hit, |n| {
        let value = Pmc::Pmc3.read();
        // Hardware takes the value for an overflow; QEMU does not.
        let kept = value >= OVERFLOW || ebb::count() > before.get() + 1;
        check!(kept || counters_run.contains(&n), "{value:#x}");
        goes_on()
    })?;
    session.close();
    Ok(())
}

/// A resume reloads the counter, even if the entry has left it negative.
fn session_disabled(save: Save, flags: libc::c_int) -> Outcome {
    let (session, entry) = begin_session(save, overflow_and_disable, flags)?;
    let disabled_until_hit = || {
        OVERFLOWN.store(true, Relaxed);
        session.resume()?;
        wait_until_hit()
    };
    // The `disable` in the handler skips the three instructions that call the routine to reload.
    entry.at_each(resume_session, entry.all(), 3, disabled_until_hit, |n| {
        if n <= entry.call() {
            session.resume()?;
        }
        let value = Pmc::Pmc3.read();
        check!(value < OVERFLOW, "{value:#x}");
        expect_state(State::Running)?;
        goes_on()
    })?;
    session.close();
    Ok(())
}

/// Changes the address at which the program continues, and changes it back. The compiler does not
/// inline it, so that it has instructions of its own.
#[inline(never)]
fn move_there_and_back(context: &mut EbbContext<'_>) {
    let address = context.interrupted();
    // SAFETY: The final address is the one that was interrupted.
    unsafe {
        context.set_interrupted(address + 4);
        context.set_interrupted(address);
    }
}

/// In the middle of that function the signal's handler finds the EBB in progress.
fn session_moved(save: Save, flags: libc::c_int) -> Outcome {
    // Must come before the first EBB, as `Entry` copies the function's page.
    let handler = Entry::function(move_there_and_back as *const () as usize, flags)?;
    let (session, _) = begin_session(save, move_there_and_back, flags)?;
    handler.at_each(pause_and_resume, handler.all(), 0, until_hit, |_| {
        expect_state(State::Running)?;
        goes_on()
    })?;
    session.close();
    Ok(())
}

/// Runs `test` with the signal's handler on the program's stack, and on a stack of its own.
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
    session_jumped_gprs = session_after_jump(Save::Gprs),
    session_jumped_full = session_after_jump(Save::Full),
    session_paused_gprs = both(session_paused, Save::Gprs),
    session_paused_full = both(session_paused, Save::Full),
    session_stopped_gprs = both(session_stopped, Save::Gprs),
    session_stopped_full = both(session_stopped, Save::Full),
    session_kept_gprs = both(session_kept, Save::Gprs),
    session_kept_full = both(session_kept, Save::Full),
    session_disabled_gprs = both(session_disabled, Save::Gprs),
    session_disabled_full = both(session_disabled, Save::Full),
    session_moved_gprs = both(session_moved, Save::Gprs),
    session_moved_full = both(session_moved, Save::Full),
    forked_gprs = forked(Save::Gprs), forked_full = forked(Save::Full),
    forked_in_handler_gprs = forked_in_handler(Save::Gprs),
    forked_in_handler_full = forked_in_handler(Save::Full),
    unwound_gprs = both(unwound, Save::Gprs), unwound_full = both(unwound, Save::Full),
    unwound_reload_gprs = both(unwound_reload, Save::Gprs),
    unwound_reload_full = both(unwound_reload, Save::Full),
    chained_gprs = both(chained, Save::Gprs), chained_full = both(chained, Save::Full),
}

// SPDX-License-Identifier: GPL-2.0
//! Calls of the library while a handler is in progress: in the handler, in a signal's handler on
//! top of it, on any stack; and after a jump out of it.

use ebb::EbbContext;
use ebb::Error;
use ebb::Event;
use ebb::Handler;
use ebb::Owner;
use ebb::Pmc;
use ebb::Rearm;
use ebb::Save;
use ebb::reg::Bescr;
use ebb::reg::Mmcr0;
use ebb_selftests::each_instruction::Entry;
use ebb_selftests::each_instruction::expect;
use ebb_selftests::each_instruction::wait_until_hit;
use ebb_selftests::escape;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ktap::Failure;
use ktap::Outcome;
use ktap::check;
use std::hint::black_box;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

const PERIOD: u32 = 10_000;
/// Number of the EBB in which a test acts.
const SPECIAL: u64 = 3;

/// BESCR after a call, with a bit that marks it as read; and the number of failed calls.
static SEEN: AtomicU64 = AtomicU64::new(0);
static FAILED: AtomicU64 = AtomicU64::new(0);

const READ: u64 = 2;

/// `stdu 1,-544(1)`, with which an entry makes the frame that `escape::call_like_entry` imitates.
const STDU_544: u32 = 0xf821_fde1;

fn note(result: Result<(), Error>) {
    SEEN.store(Bescr::read().0 | READ, Relaxed);
    if result.is_err() {
        FAILED.fetch_add(1, Relaxed);
    }
}

/// Starts EBBs every [`PERIOD`] cycles, with SIGUSR1 handled by `on_signal` with `flags`.
fn begin(
    handler: Handler,
    on_signal: extern "C" fn(libc::c_int),
    flags: i32,
) -> Result<Event, Failure> {
    static mut STACK: [u128; 4096] = [0; 4096];
    // SAFETY: Zeroes are a valid sigaction; no other code uses the stack.
    ktap::os_result(unsafe {
        let stack = libc::stack_t {
            ss_sp: (&raw mut STACK).cast(),
            ss_flags: 0,
            ss_size: 4096 * 16,
        };
        libc::sigaltstack(&stack, std::ptr::null_mut());
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = flags;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut())
    })?;
    session::begin(CYCLES, PERIOD, handler)
}

fn raise(context: &mut EbbContext<'_>) {
    if context.number() == SPECIAL {
        // SAFETY: `begin` has installed a handler of the signal.
        unsafe { libc::raise(libc::SIGUSR1) };
    }
}

extern "C" fn nothing(_: libc::c_int) {}

extern "C" fn call_disable(_: libc::c_int) {
    ebb::disable();
    note(Ok(()));
}

/// EBBs are off after the handler, until `resume`.
fn off_after(handler: Handler, on_signal: extern "C" fn(libc::c_int)) -> Outcome {
    let event = begin(handler, on_signal, libc::SA_ONSTACK)?;
    session::wait_for(SPECIAL, PERIOD)?;
    session::expect_none(5 * u64::from(PERIOD))?;
    check!(ebb::count() == SPECIAL, "{} EBBs", ebb::count());
    let bescr = Bescr::read();
    check!(!bescr.has(Bescr::PME), "{bescr:?} after the handler");
    ebb::resume()?;
    // QEMU does not need PMAE, so check that it is set.
    let mmcr0 = Mmcr0::read();
    check!(mmcr0 == Mmcr0::PMAE, "{mmcr0:?} after resume");
    session::wait_for(30, PERIOD)?;
    session::end(event)
}

fn disable_in_handler(context: &mut EbbContext<'_>) {
    if context.number() == SPECIAL {
        ebb::disable();
        // The handler's other request does not undo the `disable`.
        context.rearm(Rearm::Restart);
    }
}

fn stop(context: &mut EbbContext<'_>) {
    if context.number() == SPECIAL {
        context.rearm(Rearm::Stop);
    }
}

/// Requests `Stop`, and undoes it in the same handler.
fn stop_and_resume(context: &mut EbbContext<'_>) {
    stop(context);
    if context.number() == SPECIAL {
        ebb::disable();
        note(ebb::resume());
    }
}

fn resumed_in_handler() -> Outcome {
    let event = begin(stop_and_resume, nothing, 0)?;
    session::wait_for(30, PERIOD)?;
    check!(FAILED.load(Relaxed) == 0);
    session::end(event)
}

/// Without an event, `resume` notices the loss of the PMU and returns.
fn resumed_without_event() -> Outcome {
    let event = begin(stop, nothing, 0)?;
    session::wait_for(SPECIAL, PERIOD)?;
    event.disable()?;
    check!(!ebb::evicted());
    ebb::resume()?;
    check!(ebb::evicted(), "the loss went unnoticed");
    session::end(event)
}

static RELOAD: OnceLock<Entry> = OnceLock::new();

fn resume_and_trap_reload() {
    expect(ebb::resume().is_ok(), line!());
    if let Some(reload) = RELOAD.get() {
        reload.trap_at(0, ebb::disable);
    }
}

/// A signal between the handler and `rfebb` makes the entry reload the counters, and a second
/// signal comes in the routine that does so. It finds the EBB in progress: no EBB comes after its
/// `disable`.
fn disabled_in_reload(save: Save) -> Outcome {
    let event = session::prepare(CYCLES, |context| context.rearm(Rearm::Stop))?;
    // SAFETY: The handler uses general registers only.
    unsafe { ebb::install_saving(save, |context| context.rearm(Rearm::Stop))? };
    ebb::start(Pmc::Pmc1, PERIOD.into())?;
    let (entry, reload) = (Entry::find(0)?, Entry::reload(0)?);
    RELOAD.get_or_init(|| reload);
    let resumed_until_hit = || {
        ebb::resume()?;
        wait_until_hit()
    };
    let way_back = entry.call() + 1..entry.rfebb();
    // `Rearm::Stop` skips the three instructions that call the routine to reload.
    entry.at_each(
        resume_and_trap_reload,
        way_back,
        3,
        resumed_until_hit,
        |_| {
            let bescr = Bescr::read();
            check!(!bescr.has(Bescr::PME), "{bescr:?} after `disable`");
            session::expect_none(3 * u64::from(PERIOD))
        },
    )?;
    session::end(event)
}

/// A function has a frame as large as an entry's, and the last EBB interrupted the address to which
/// a call of the library returns there. The library does not take it for a handler in progress.
fn resumed_in_frame_like_entrys() -> Outcome {
    extern "C" fn resume() {
        note(ebb::resume());
    }
    let event = begin(stop, nothing, 0)?;
    session::wait_for(SPECIAL, PERIOD)?;
    ebb::disable();
    let entry = ptr::with_exposed_provenance::<u32>(session::ebb_registers()[1] as usize);
    // SAFETY: The address is that of the library's entry, as `begin` has installed it.
    let first = unsafe { entry.read() };
    check!(first == STDU_544, "the entry is another: {first:#x}");
    escape::call_like_entry(resume);
    check!(FAILED.load(Relaxed) == 0);
    session::wait_for(30, PERIOD)?;
    session::end(event)
}

fn uninstall(context: &mut EbbContext<'_>) {
    if context.number() == SPECIAL {
        note(ebb::uninstall());
    }
}

fn uninstalled_in_handler() -> Outcome {
    let event = begin(uninstall, nothing, 0)?;
    session::wait_for(SPECIAL, PERIOD)?;
    check!(FAILED.load(Relaxed) == 0, "uninstall failed");
    // If PME were on, the next EBB would branch to 0.
    Pmc::Pmc1.write(Pmc::start_value(100));
    Mmcr0::PMAE.write();
    session::work_for(5 * u64::from(PERIOD));
    check!(ebb::owner() == Owner::Nobody, "{:?}", ebb::owner());
    check!(!Bescr::read().has(Bescr::PME), "{:?}", Bescr::read());
    event.close();
    let event = session::cycles(PERIOD)?;
    session::wait_for(20, PERIOD)?;
    session::end(event)
}

fn inject(context: &mut EbbContext<'_>) {
    if context.number() == SPECIAL && ebb::inject() == Err(Error::InProgress) {
        note(Ok(()));
    }
}

/// `inject` is refused in a handler, as a nested EBB would overwrite the return address of the
/// first.
fn injected_in_handler() -> Outcome {
    let event = begin(inject, nothing, 0)?;
    session::wait_for(30, PERIOD)?;
    check!(SEEN.load(Relaxed) != 0, "not refused");
    session::end(event)
}

fn jump(context: &mut EbbContext<'_>) {
    if context.number() == SPECIAL {
        // SAFETY: `until_jumped` runs in `call_escapable`.
        unsafe { escape::escape() };
    }
}

extern "C" fn until_jumped() {
    session::work_for(100 * u64::from(PERIOD));
}

fn after_jump() -> Result<Event, Failure> {
    let event = begin(jump, nothing, 0)?;
    // SAFETY: `until_jumped` has nothing that must be dropped.
    let jumped = unsafe { escape::call_escapable(until_jumped) };
    check!(jumped == 1, "no jump, {} EBBs", ebb::count());
    Ok(event)
}

/// Calls [`ebb::enable`] with a stack pointer well below the frame of the abandoned handler.
#[inline(never)]
fn enable_deep() -> Result<(), Error> {
    let deep = [1_u8; 8192];
    black_box(&deep);
    let result = ebb::enable();
    black_box(&deep);
    result
}

fn enabled_deeper_after_jump() -> Outcome {
    let event = after_jump()?;
    enable_deep()?;
    session::wait_for(30, PERIOD)?;
    session::end(event)
}

/// The library still knows of the abandoned handler after another one was installed.
fn installed_after_jump() -> Outcome {
    let event = after_jump()?;
    session::install(session::count_only)?;
    ebb::set_period(Pmc::Pmc1, PERIOD.into())?;
    ebb::enable()?;
    session::wait_for(30, PERIOD)?;
    session::end(event)
}

fn enabled_without_event_after_jump() -> Outcome {
    let event = after_jump()?;
    event.disable()?;
    ebb::enable()?;
    check!(ebb::evicted(), "the loss went unnoticed");
    session::end(event)
}

ktap::main! {
    first: session::require_ebb;
    disable_on_top = off_after(raise, call_disable),
    disabled_in_handler = off_after(disable_in_handler, nothing),
    stopped = off_after(stop, nothing),
    resumed_in_handler, resumed_without_event, resumed_in_frame_like_entrys,
    disabled_in_reload_gprs = disabled_in_reload(Save::Gprs),
    disabled_in_reload_full = disabled_in_reload(Save::Full),
    uninstalled_in_handler, injected_in_handler,
    enabled_deeper_after_jump, installed_after_jump, enabled_without_event_after_jump,
}

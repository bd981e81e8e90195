// SPDX-License-Identifier: GPL-2.0
//! What a handler is told of the interrupted code, what it may change, and that
//! unwinders find their way from it to the code that was interrupted.

use ebb::EbbContext;
use ebb::Event;
use ebb::Pmc;
use ebb::Save;
use ebb::pmc;
use ebb_selftests::escape;
use ebb_selftests::registers;
use ebb_selftests::registers::Registers;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ktap::Failure;
use ktap::Outcome;
use ktap::check;
use std::ffi::c_void;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

const PERIOD: u32 = 10_000;

/// EBBs every [`PERIOD`] cycles to a handler under `save`.
fn begin<F>(save: Save, handler: F) -> Result<Event, Failure>
where
    F: Fn(&mut EbbContext<'_>) + Copy + 'static,
{
    let event = ebb::event(CYCLES).open()?;
    // SAFETY: the handlers below keep to what a signal handler may do; those under
    // Save::Gprs are assembly or use no other register.
    unsafe { ebb::install_saving(save, handler)? };
    event.enable()?;
    event.check_scheduled()?;
    pmc::freeze();
    ebb::start(Pmc::Pmc1, PERIOD.into())?;
    ebb::enable()?;
    pmc::unfreeze();
    Ok(event)
}

/// The least of the registers: a handler that changes all GPRs changes nothing.
fn gprs_are_kept() -> Outcome {
    let pattern = Registers::pattern();
    let mut held = Registers::zero();
    let event = begin(Save::Gprs, |_| escape::spoil_gprs())?;
    let before = ebb::count();
    // SAFETY: both point at `Registers`, and there are no signal handlers.
    unsafe { registers::hold_registers(&pattern, &mut held, 400_000) };
    let came = ebb::count() - before;
    session::end(event)?;
    check!(came >= 20, "only {came} EBBs came");
    // What counts the time, and what only loading changes.
    (held.ctr, held.fpscr) = (pattern.ctr, pattern.fpscr);
    for used in [1, 13, 31] {
        held.gpr[used] = 0;
    }
    held.vscr = pattern.vscr;
    check!(held == pattern, "{held:#x?}\nis not\n{pattern:#x?}");
    Ok(())
}

/// EBBs in which the handler saw the pattern, and the pattern.
static MATCHES: AtomicU64 = AtomicU64::new(0);
static PATTERN: [AtomicU64; 35] = [const { AtomicU64::new(0) }; 35];

/// Counts the EBBs whose registers are the pattern's.
fn compare(context: &mut EbbContext<'_>) {
    let seen = |n: usize| match n {
        32 => context.link_register(),
        33 => context.tar(),
        34 => context.condition_register(),
        _ => context.gpr(n).unwrap_or(0),
    };
    let known = (0..35).filter(|n| ![1, 13, 31].contains(n));
    let same = known
        .clone()
        .filter(|&n| seen(n) == PATTERN[n].load(Relaxed))
        .count();
    if same == known.count() {
        MATCHES.fetch_add(1, Relaxed);
    }
}

fn registers_are_shown() -> Outcome {
    let pattern = Registers::pattern();
    let rest = [pattern.lr, pattern.tar, pattern.cr];
    for (place, value) in PATTERN.iter().zip(pattern.gpr.iter().chain(&rest)) {
        place.store(*value, Relaxed);
    }
    let mut held = Registers::zero();
    let event = begin(Save::Full, compare)?;
    let before = ebb::count();
    // SAFETY: as before.
    unsafe { registers::hold_registers(&pattern, &mut held, 400_000) };
    let came = ebb::count() - before;
    session::end(event)?;
    let same = MATCHES.load(Relaxed);
    // One or two came outside of the loop.
    check!(came >= 20 && same + 3 >= came, "{same} of {came} EBBs");
    Ok(())
}

/// What the handlers below have seen: how often the address was in the loop, and the EBB's.
static IN_LOOP: AtomicU64 = AtomicU64::new(0);
static ADDRESS: AtomicU64 = AtomicU64::new(0);

/// Whether the interrupted code is the endless loop.
fn in_loop(context: &EbbContext<'_>) -> bool {
    // Its only instruction is the one before.
    context.interrupted() + 4 == escape::loop_end as *const () as u64
}

/// Ends the loop by another address to go on at, in the fifth EBB.
fn move_on(context: &mut EbbContext<'_>) {
    if !in_loop(context) {
        return;
    }
    if IN_LOOP.fetch_add(1, Relaxed) == 4 {
        let end = escape::loop_end as *const () as u64;
        // SAFETY: the registers are as the loop's end wants them.
        unsafe { context.set_interrupted(end) };
    }
}

/// r14 and above are where they are; the rest is shown, also under the short entry.
static HIDDEN: AtomicU64 = AtomicU64::new(0);

fn moved(save: Save) -> Outcome {
    let event = begin(save, |context| {
        let argument = context.gpr(3) == Some(0x1234);
        let hidden = context.gpr(14).is_none() && context.gpr(32).is_none();
        if in_loop(context) && argument && hidden {
            HIDDEN.fetch_add(1, Relaxed);
        }
        move_on(context);
    })?;
    let n = escape::loop_within(0x1234);
    session::end(event)?;
    check!(n == 0x1234, "{n:#x}");
    let (came, hidden) = (IN_LOOP.load(Relaxed), HIDDEN.load(Relaxed));
    let expected = if save == Save::Gprs { 5 } else { 0 };
    check!(came == 5, "{came} EBBs in the loop");
    check!(hidden == expected, "{hidden} EBBs, {expected} expected");
    Ok(())
}

/// Return addresses that an unwinder has found, innermost first.
static FOUND: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];
static FOUND_LENGTH: AtomicUsize = AtomicUsize::new(0);

fn note(address: u64) {
    let n = FOUND_LENGTH.fetch_add(1, Relaxed);
    if let Some(place) = FOUND.get(n) {
        place.store(address, Relaxed);
    }
}

unsafe extern "C" {
    /// libgcc's unwinder, which `backtrace()` and C++ use.
    fn _Unwind_Backtrace(
        trace: extern "C" fn(*mut c_void, *mut c_void) -> i32,
        argument: *mut c_void,
    ) -> i32;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

extern "C" fn trace(context: *mut c_void, _: *mut c_void) -> i32 {
    // SAFETY: the unwinder's own context.
    note(unsafe { _Unwind_GetIP(context) } as u64);
    0
}

/// By call frame information.
#[inline(never)]
fn unwind_by_information() {
    // SAFETY: `trace` keeps nothing. It takes a lock, which the interrupted loop does not.
    unsafe { _Unwind_Backtrace(trace, std::ptr::null_mut()) };
}

/// Follows the back chain, as profilers and the kernel do.
#[inline(never)]
fn walk_back_chain() {
    let mut frame: u64;
    // SAFETY: reads the stack pointer.
    unsafe { std::arch::asm!("mr {}, 1", out(reg) frame) };
    for _ in 0..12 {
        // SAFETY: each frame has the address of the next one, which has an address to
        // return to at 16, up to the program's own first.
        unsafe {
            frame = *std::ptr::with_exposed_provenance::<u64>(frame as usize);
            if frame == 0 {
                return;
            }
            note(*std::ptr::with_exposed_provenance::<u64>(
                frame as usize + 16,
            ));
        }
    }
}

/// Whether to go by call frame information.
static BY_INFORMATION: AtomicBool = AtomicBool::new(false);

/// The handler finds the interrupted address, and behind it the loop's caller, after
/// `between` others.
fn unwound(by_information: bool, between: usize) -> Outcome {
    BY_INFORMATION.store(by_information, Relaxed);
    let event = begin(Save::Full, |context| {
        if in_loop(context) && IN_LOOP.load(Relaxed) == 3 {
            ADDRESS.store(context.interrupted(), Relaxed);
            match BY_INFORMATION.load(Relaxed) {
                true => unwind_by_information(),
                false => walk_back_chain(),
            }
        }
        move_on(context);
    })?;
    escape::loop_within(0);
    session::end(event)?;
    let found: Vec<u64> = FOUND.iter().map(|address| address.load(Relaxed)).collect();
    let address = ADDRESS.load(Relaxed);
    let Some(at) = found.iter().position(|&found| found == address) else {
        return ktap::fail(format!("{address:#x} is not in {found:x?}"));
    };
    let caller = found.get(at + 1 + between).copied().unwrap_or(0);
    let begin = escape::loop_within as *const () as u64;
    let end = escape::loop_within_end as *const () as u64;
    check!(
        (begin..end).contains(&caller),
        "{caller:#x} is not in {begin:#x} to {end:#x}: {found:x?}"
    );
    Ok(())
}

/// The time base goes on, and the counter that overflowed is the one asked for.
static TIMES: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

fn time_and_counters() -> Outcome {
    let event = begin(Save::Full, |context| {
        let n = (context.number() % 2) as usize;
        TIMES[n].store(context.time_base(), Relaxed);
        if context.overflowed(Pmc::Pmc1) && !context.overflowed(Pmc::Pmc2) {
            IN_LOOP.fetch_add(1, Relaxed);
        }
    })?;
    session::wait_for(20, PERIOD)?;
    session::end(event)?;
    let (came, right) = (ebb::count(), IN_LOOP.load(Relaxed));
    check!(came == right, "{right} of {came} EBBs");
    let last = (came % 2) as usize;
    let [now, before] = [last, 1 - last].map(|n| TIMES[n].load(Relaxed));
    check!(now > before && before > 0, "{before}, {now}");
    Ok(())
}

/// A closure has the reference that it has captured, not that of the one before.
fn captured_reference() -> Outcome {
    let counts = [(); 2].map(|()| &*Box::leak(Box::new(AtomicU64::new(0))));
    for seen in counts {
        let event = begin(Save::Full, move |context| {
            seen.store(context.number(), Relaxed);
        })?;
        session::wait_for(20, PERIOD)?;
        ebb::disable();
        let seen = seen.load(Relaxed);
        check!(seen == ebb::count(), "{seen} of {}", ebb::count());
        session::end(event)?;
    }
    Ok(())
}

ktap::main! {
    first: session::require_ebb;
    gprs_are_kept, registers_are_shown, moved_on_gprs = moved(Save::Gprs),
    moved_on_full = moved(Save::Full),
    unwound_by_information = unwound(true, 0),
    // Between them is the place where the loop would store LR if it called anything.
    unwound_by_back_chain = unwound(false, 1),
    time_and_counters, captured_reference,
}

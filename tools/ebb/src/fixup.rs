// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens when a handler's access to a PMU register traps.
//!
//! The thread may lose the PMU while its handler runs: the kernel switches to another
//! task and finds a pinned event of a CPU that was there first (the EBB group is then in
//! error state), or another thread disables or closes the event. From then on an access
//! ends in SIGILL. Neither entry nor handler can know in advance, so each access of this
//! library notes its address in the section `ebb_fixup`, as the kernel does for its
//! accesses to user memory: the signal handler here steps over it, and what it would have
//! read is 0. The handler ends, the program goes on, and
//! [`evicted`](crate::evicted) tells.
//!
//! The table holds the lines of all copies of this library that are linked into one program or
//! shared object. Each copy takes its own, which it knows by the address of its
//! `ebb_thread_offset`: a line of another copy's is for that one's threads' blocks.
//!
//! Only accesses of the entries and of the library itself are always stepped over, and while a
//! handler runs those of [`crate::spr`]: which it is says the line of the instruction, not a flag
//! that a jump out of a signal's handler would leave set. Every other SIGILL goes to the action that
//! was there before, with its SA_RESETHAND, but without its signal mask and on the signal stack if
//! there is one.

use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::AtomicI32;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Acquire;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::Ordering::Release;

use crate::progress::PT_NIP;
use crate::progress::REGS_OFFSET;
use crate::reg::Bescr;
use crate::spr;
use crate::thread;

/// An instruction that may trap, with its line in the table, whose [`Entry::when`] is given.
macro_rules! noted {
    ($instruction:literal, $when:literal) => {
        concat!(
            "77: ",
            $instruction,
            "\n",
            ".pushsection ebb_fixup, \"aR\", @progbits\n",
            ".balign 4\n",
            ".long 77b - ., ",
            $when,
            ", ebb_thread_offset - .",
            "\n",
            ".popsection",
        )
    };
}
pub(crate) use noted;

/// An instruction of an entry, or of the library itself, that is always stepped over.
macro_rules! fixed_up {
    ($instruction:literal) => {
        $crate::fixup::noted!($instruction, 1)
    };
}
pub(crate) use fixed_up;

/// The same for an instruction that is stepped over while a handler runs.
macro_rules! fixed_up_in_handler {
    ($instruction:literal) => {
        $crate::fixup::noted!($instruction, 0)
    };
}
pub(crate) use fixed_up_in_handler;

/// The same for a read outside of handlers that is stepped over with the instruction behind it,
/// which is only for one that has read something.
macro_rules! fixed_up_pair {
    ($instruction:literal) => {
        $crate::fixup::noted!($instruction, 2)
    };
}
pub(crate) use fixed_up_pair;

/// A line of the table.
#[repr(C)]
struct Entry {
    /// Distance of the instruction from this field.
    distance: i32,
    /// [`IN_HANDLER`], 1: always stepped over; or [`PAIR`], always, with the next.
    when: u32,
    /// Distance of the copy's `ebb_thread_offset` from this field.
    owner: i32,
}

unsafe extern "C" {
    /// The bounds of the table, which the linker knows.
    #[link_name = "__start_ebb_fixup"]
    static START: Entry;
    #[link_name = "__stop_ebb_fixup"]
    static STOP: Entry;
}

/// Values of [`Entry::when`].
const IN_HANDLER: u32 = 0;
const PAIR: u32 = 2;

// Each program and shared object has a table of its own.
core::arch::global_asm!(".hidden __start_ebb_fixup", ".hidden __stop_ebb_fixup");

/// Opcode 31 with its extended opcodes that write a GPR: mfspr and mfbhrbe.
const MFSPR: u32 = 31 << 26 | 339 << 1;
const MFBHRBE: u32 = 31 << 26 | 302 << 1;
const OPCODE_MASK: u32 = 63 << 26 | 1023 << 1;

/// The action for SIGILL before [`install`]: its function, or SIG_DFL or SIG_IGN, and flags.
static BEFORE: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static BEFORE_FLAGS: AtomicI32 = AtomicI32::new(0);

/// [`install`] was called before.
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Has accesses stepped over as this file says, from now on and for the whole process, and
/// SIGILL not blocked in this thread: blocked, it kills the process where it traps.
///
/// Several threads, and a signal's handler in the middle of it, find the same action and store the
/// same values. A program's own action that came after ours stays, as it may call ours.
pub(crate) fn install() {
    let ours = on_sigill as *const () as usize;
    let action = exchange(None);
    let nobodys = matches!(action.function, libc::SIG_DFL | libc::SIG_IGN);
    if action.function != ours && (nobodys || !INSTALLED.load(Acquire)) {
        // Before ours is set: another thread may trap at once.
        keep(&action);
        // An EBB may come while a handler for SIGILL runs, and trap in turn.
        let flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        let replaced = exchange(Some(&Action::new(ours, flags)));
        if replaced.function != ours {
            // Another thread may have set one since it was asked for.
            keep(&replaced);
        }
        INSTALLED.store(true, Release);
    }
    // SAFETY: zeroes are a valid signal set; all pointers are of variables here.
    unsafe {
        let mut sigill: libc::sigset_t = MaybeUninit::zeroed().assume_init();
        libc::sigaddset(&mut sigill, libc::SIGILL);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &sigill, ptr::null_mut());
    }
}

/// The kernel's `struct sigaction` (uapi/asm/signal.h).
#[repr(C)]
struct Action {
    /// SIG_DFL, SIG_IGN or a function.
    function: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

impl Action {
    const fn new(function: usize, flags: libc::c_int) -> Self {
        Self {
            function,
            // CAST: the flags of an int, the highest of which is no sign.
            flags: flags as u32 as u64,
            restorer: 0,
            mask: 0,
        }
    }
}

/// Sets the action for SIGILL if there is a new one; the one before. By the call's number: of the
/// C library's name there may be a function that calls [`replace_next`].
fn exchange(new: Option<&Action>) -> Action {
    let mut old = Action::new(libc::SIG_DFL, 0);
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: actions that live, with masks of this size. One of ours takes the three arguments of
    // SA_SIGINFO.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            libc::SIGILL,
            new,
            &raw mut old,
            size_of_val(&old.mask),
        );
    }
    old
}

/// What `sigaction` of SIGILL is to do while this library's action is installed: `new` is called
/// by that for what is not this library's, and `old` gets what was before. Tells whether it is
/// installed; else nothing is done.
///
/// # Safety
///
/// Each is null or an action.
#[doc(hidden)]
pub unsafe fn replace_next(new: *const libc::sigaction, old: *mut libc::sigaction) -> bool {
    if exchange(None).function != on_sigill as *const () as usize {
        return false;
    }
    let (function, flags) = (BEFORE.load(Acquire), BEFORE_FLAGS.load(Relaxed));
    // SAFETY: the caller's contract. They may be the same.
    unsafe {
        if let Some(new) = new.as_ref() {
            BEFORE_FLAGS.store(new.sa_flags, Relaxed);
            BEFORE.store(new.sa_sigaction, Release);
        }
        if let Some(old) = old.as_mut() {
            *old = MaybeUninit::zeroed().assume_init();
            old.sa_sigaction = function;
            old.sa_flags = flags;
        }
    }
    true
}

/// Has `action` get the signals that are not ours.
fn keep(action: &Action) {
    // CAST: of an int.
    BEFORE_FLAGS.store(action.flags as i32, Relaxed);
    BEFORE.store(action.function, Release);
}

extern "C" fn on_sigill(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel gave `info`.
    let trapped = unsafe { (*info).si_code } > 0;
    // SAFETY: the kernel handed `context` to this signal handler.
    if trapped && unsafe { step_over(context) } {
        return;
    }
    match BEFORE.load(Acquire) {
        // An instruction that traps ends the process all the same.
        libc::SIG_IGN if !trapped => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // The instruction traps again; or somebody has sent the signal, which then does.
            exchange(Some(&Action::new(libc::SIG_DFL, 0)));
            if !trapped {
                // SAFETY: without pointers.
                unsafe { libc::raise(signal) };
            }
        }
        action => {
            if BEFORE_FLAGS.load(Relaxed) & libc::SA_RESETHAND != 0 {
                // Unless somebody has set another since.
                let _ = BEFORE.compare_exchange(action, libc::SIG_DFL, Relaxed, Relaxed);
            }
            type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
            // SAFETY: it is a signal handler of the program, which takes three arguments or
            // only looks at the first.
            let action = unsafe { core::mem::transmute::<usize, Handler>(action) };
            action(signal, info, context);
        }
    }
}

/// Steps over the instruction that `context` is at, if it is one of the table and to be
/// stepped over; tells whether it was. For a program that handles SIGILL itself: call
/// this first if `si_code` is greater than 0, and be done if it says true. The handler needs
/// SA_NODEFER if EBBs may come while it runs.
///
/// # Safety
///
/// `context` is what the kernel gave to a handler of SIGILL as its third argument.
pub unsafe fn step_over(context: *mut libc::c_void) -> bool {
    // SAFETY: the caller's contract; `regs` points at the registers it goes on with.
    let regs = unsafe { *context.byte_add(REGS_OFFSET).cast::<*mut u64>() };
    // SAFETY: as before.
    let nip = unsafe { &mut *regs.add(PT_NIP) };
    let active = thread::with(|t| t.active.load()) != 0;
    let when = match find(*nip) {
        Some(entry) if entry.when != IN_HANDLER || active => entry.when,
        _ => return false,
    };
    // SAFETY: the processor has just fetched it from there.
    let instruction = unsafe { ptr::with_exposed_provenance::<u32>(*nip as usize).read() };
    if matches!(instruction & OPCODE_MASK, MFSPR | MFBHRBE) {
        let target = instruction >> 21 & 31;
        // SAFETY: the first 32 registers are the GPRs.
        unsafe { regs.add(target as usize).write(0) };
    }
    *nip += 4;
    if when == PAIR {
        *nip += 4;
    }
    // Of a read outside of handlers nothing is lost but what was to be read.
    if when != PAIR || active {
        thread::with(|t| t.evicted.store(1));
    }
    // SAFETY: EBBHR is always readable.
    if unsafe { spr::read::<{ spr::EBBHR }>() } == 0 {
        // The child of a fork in a handler comes here on the way back, which sets GE; an event
        // of its own would branch to 0.
        // SAFETY: a bit less.
        unsafe { Bescr::read().without(Bescr::PME).write() };
    }
    true
}

/// The line of the table for the instruction at `address`.
fn find(address: u64) -> Option<&'static Entry> {
    let own = thread::offset_address();
    let (mut entry, stop) = (&raw const START, &raw const STOP);
    while entry != stop {
        // SAFETY: within the table, all of it made of entries.
        let line = unsafe { &*entry };
        let place = &raw const line.distance as u64;
        let owner = (&raw const line.owner as u64).wrapping_add_signed(line.owner.into());
        if place.wrapping_add_signed(line.distance.into()) == address && owner == own {
            return Some(line);
        }
        // SAFETY: not behind `stop`.
        entry = unsafe { entry.add(1) };
    }
    None
}

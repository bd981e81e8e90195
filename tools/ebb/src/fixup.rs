// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recovery from SIGILL when an access to a PMU register traps.
//!
//! A thread may lose the PMU while its handler runs: the kernel switches to another task and then
//! finds a pinned CPU event that takes precedence (the EBB group is then in error state), or
//! another thread disables or closes the event. From then on each access ends in SIGILL. Neither
//! entry nor handler can know in advance. So each access of this library records its address in the
//! section `ebb_fixup`, as the kernel does for its accesses to user memory. The signal handler here
//! skips the instruction and sets the register that it would have read to 0. The handler ends, the
//! program continues, and [`evicted`](crate::evicted) returns `true`.
//!
//! The table holds the entries of all copies of this library that are linked into one program or
//! shared object. Each copy uses only its own, which name the address of its `ebb_thread_offset`:
//! entries of another copy refer to that copy's thread blocks.
//!
//! Accesses of the EBB entries and of the library itself are always skipped, those of
//! [`crate::spr`] only while a handler runs. The table entry records which, instead of a flag that
//! would stay set if a signal handler were left by longjmp(). Every other SIGILL goes to the action
//! that was installed before. Its SA_RESETHAND is respected, but its signal mask is not, and it
//! runs on the alternate signal stack if there is one.

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

/// Emits an instruction that may trap and its table entry with the given [`Entry::when`].
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

/// Emits an instruction of an EBB entry or of the library itself, which is always skipped if it
/// traps.
macro_rules! fixed_up {
    ($instruction:literal) => {
        $crate::fixup::noted!($instruction, 1)
    };
}
pub(crate) use fixed_up;

/// Emits an instruction that is skipped if it traps while a handler runs.
macro_rules! fixed_up_in_handler {
    ($instruction:literal) => {
        $crate::fixup::noted!($instruction, 0)
    };
}
pub(crate) use fixed_up_in_handler;

/// Emits a read outside of handlers. If it traps, it is skipped together with the next instruction,
/// which is meant for the case that the read succeeded.
macro_rules! fixed_up_pair {
    ($instruction:literal) => {
        $crate::fixup::noted!($instruction, 2)
    };
}
pub(crate) use fixed_up_pair;

/// An entry of the table.
#[repr(C)]
struct Entry {
    /// Distance of the instruction from this field, in bytes.
    distance: i32,
    /// [`IN_HANDLER`]; or 1: always skip; or [`PAIR`]: always skip, with the next instruction.
    when: u32,
    /// Distance of the copy's `ebb_thread_offset` from this field, in bytes.
    owner: i32,
}

unsafe extern "C" {
    /// The bounds of the table. The linker defines them.
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

/// Opcode 31 and the extended opcodes of the instructions that write a GPR: mfspr and mfbhrbe.
const MFSPR: u32 = 31 << 26 | 339 << 1;
const MFBHRBE: u32 = 31 << 26 | 302 << 1;
const OPCODE_MASK: u32 = 63 << 26 | 1023 << 1;

/// The action for SIGILL before [`install`] (a function, SIG_DFL or SIG_IGN) and its flags.
static BEFORE: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static BEFORE_FLAGS: AtomicI32 = AtomicI32::new(0);

/// Set once [`install`] was called.
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Installs the process's handler for SIGILL, which skips accesses that trap. Unblocks SIGILL in
/// this thread, because a trap kills the process while the signal is blocked.
///
/// May run in several threads at once, or in a signal handler that has interrupted it: all find
/// the same action and store the same values. If the program replaced our action with its own,
/// that is kept, because it may call ours.
pub(crate) fn install() {
    let ours = on_sigill as *const () as usize;
    let action = exchange(None);
    let nobodys = matches!(action.function, libc::SIG_DFL | libc::SIG_IGN);
    if action.function != ours && (nobodys || !INSTALLED.load(Acquire)) {
        // Must be stored before ours is installed: another thread may trap at once.
        keep(&action);
        // SA_NODEFER: an EBB may occur while a handler for SIGILL runs, and trap in turn.
        let flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        let replaced = exchange(Some(&Action::new(ours, flags)));
        if replaced.function != ours {
            // Another thread may have installed it since `exchange(None)`.
            keep(&replaced);
        }
        INSTALLED.store(true, Release);
    }
    // SAFETY: Zeroes are a valid `sigset_t`, and all pointers refer to local variables.
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
            // CAST: Flags are the bits of an int; via u32, so that the highest bit is not extended.
            flags: flags as u32 as u64,
            restorer: 0,
            mask: 0,
        }
    }
}

/// Sets the action for SIGILL if `new` is given, and returns the previous one. Uses the system
/// call, because the C library's `sigaction` may be interposed by a function that calls
/// [`replace_next`].
fn exchange(new: Option<&Action>) -> Action {
    let mut old = Action::new(libc::SIG_DFL, 0);
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: `new` is null or a live action, `old` is a local variable, and the size is that of
    // their masks. Our function takes the three arguments of SA_SIGINFO.
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

/// Implements `sigaction` for SIGILL while this library's action is installed: `new` becomes the
/// action for signals that are not this library's, and the previous one is stored in `old`. Returns
/// whether this library's action is installed; changes nothing if not.
///
/// # Safety
///
/// `new` and `old` are each null or point to a valid action.
#[doc(hidden)]
pub unsafe fn replace_next(new: *const libc::sigaction, old: *mut libc::sigaction) -> bool {
    if exchange(None).function != on_sigill as *const () as usize {
        return false;
    }
    let (function, flags) = (BEFORE.load(Acquire), BEFORE_FLAGS.load(Relaxed));
    // SAFETY: The caller guarantees that each is null or valid. They may be equal: `new` is read
    // before `old` is written.
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

/// Stores `action` as the one for signals that are not this library's.
fn keep(action: &Action) {
    // CAST: The kernel returns the flags of an int.
    BEFORE_FLAGS.store(action.flags as i32, Relaxed);
    BEFORE.store(action.function, Release);
}

extern "C" fn on_sigill(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: The kernel passes a valid `siginfo_t` to an SA_SIGINFO handler.
    let trapped = unsafe { (*info).si_code } > 0;
    // SAFETY: The kernel passed `context` to this signal handler as its third argument.
    if trapped && unsafe { step_over(context) } {
        return;
    }
    match BEFORE.load(Acquire) {
        // SIG_IGN does not cover a trap: it ends the process like SIG_DFL.
        libc::SIG_IGN if !trapped => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // A trap occurs again when this returns. A signal that was sent is raised again below.
            exchange(Some(&Action::new(libc::SIG_DFL, 0)));
            if !trapped {
                // SAFETY: The call takes no pointers.
                unsafe { libc::raise(signal) };
            }
        }
        action => {
            if BEFORE_FLAGS.load(Relaxed) & libc::SA_RESETHAND != 0 {
                // Fails if another thread or signal handler has set another action since.
                let _ = BEFORE.compare_exchange(action, libc::SIG_DFL, Relaxed, Relaxed);
            }
            type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
            // SAFETY: The program installed this address as a signal handler, which takes three
            // arguments or uses only the first.
            let action = unsafe { core::mem::transmute::<usize, Handler>(action) };
            action(signal, info, context);
        }
    }
}

/// Skips the instruction at which `context` stopped, if the table has it and the rules of this
/// table allow it. Returns whether it did.
///
/// This is for a program that handles SIGILL itself. Its handler calls this function first if
/// `si_code` is greater than 0, and returns if the result is `true`. Install the handler with
/// SA_NODEFER if EBBs may occur while it runs.
///
/// # Safety
///
/// `context` is the third argument that the kernel passed to a handler of SIGILL.
pub unsafe fn step_over(context: *mut libc::c_void) -> bool {
    // SAFETY: The caller guarantees a context from the kernel, whose `regs` points to its
    // registers.
    let regs = unsafe { *context.byte_add(REGS_OFFSET).cast::<*mut u64>() };
    // SAFETY: `regs` points to the registers that the kernel restores, in the signal's frame.
    let nip = unsafe { &mut *regs.add(PT_NIP) };
    let active = thread::with(|t| t.active.load()) != 0;
    let when = match find(*nip) {
        Some(entry) if entry.when != IN_HANDLER || active => entry.when,
        _ => return false,
    };
    // SAFETY: The processor has just executed the instruction at this address.
    let instruction = unsafe { ptr::with_exposed_provenance::<u32>(*nip as usize).read() };
    if matches!(instruction & OPCODE_MASK, MFSPR | MFBHRBE) {
        let target = instruction >> 21 & 31;
        // SAFETY: The first 32 registers are the GPRs, and `target` is below 32.
        unsafe { regs.add(target as usize).write(0) };
    }
    *nip += 4;
    if when == PAIR {
        *nip += 4;
    }
    // A read outside of handlers that fails is no eviction to report: its caller sees it.
    if when != PAIR || active {
        thread::with(|t| t.evicted.store(1));
    }
    // SAFETY: Problem state can always read EBBHR.
    if unsafe { spr::read::<{ spr::EBBHR }>() } == 0 {
        // A child that was forked inside a handler comes here when the handler returns, which sets
        // GE. With PME set, an event of the child's would branch to address 0.
        // SAFETY: The new value only has PME cleared, so it enables no EBB.
        unsafe { Bescr::read().without(Bescr::PME).write() };
    }
    true
}

/// Returns the table entry of the instruction at `address`.
fn find(address: u64) -> Option<&'static Entry> {
    let own = thread::offset_address();
    let (mut entry, stop) = (&raw const START, &raw const STOP);
    while entry != stop {
        // SAFETY: `entry` is between START and STOP, where the linker has put whole entries.
        let line = unsafe { &*entry };
        let place = &raw const line.distance as u64;
        let owner = (&raw const line.owner as u64).wrapping_add_signed(line.owner.into());
        if place.wrapping_add_signed(line.distance.into()) == address && owner == own {
            return Some(line);
        }
        // SAFETY: `entry` is before `stop`, so the next one is at most `stop`.
        entry = unsafe { entry.add(1) };
    }
    None
}

// SPDX-License-Identifier: GPL-2.0
//! A signal at each instruction of the library's entry, and of what that calls.
//!
//! A trap in place of the instruction raises it, once: the handler puts the instruction back.

use crate::session;
use ktap::Failure;
use ktap::OrFail;
use ktap::Outcome;
use ktap::check;
use std::ffi::c_void;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

const TRAP: u32 = 0x7fe0_0008;
const BCTRL: u32 = 0x4e80_0421;
const RFEBB: u32 = 0x4c00_0924;
const BLR: u32 = 0x4e80_0020;
/// `tdnei r9, 0`, where an entry looks for the signature of a sequence's abort address.
const TDNEI: u32 = 0x0b09_0000;
/// What an entry has at most, and its page.
const LONGEST: usize = 512;
const PAGE: usize = 0x1_0000;

/// What the signal's handler does.
pub type Action = fn();

/// The trap's address, or 0; the instruction that was there; and what is to be done.
static PLACE: AtomicUsize = AtomicUsize::new(0);
static INSTRUCTION: AtomicU32 = AtomicU32::new(0);
static ACTION: AtomicUsize = AtomicUsize::new(0);
/// What an action has found wrong: the line of this file.
static WRONG: AtomicU32 = AtomicU32::new(0);

/// Has [`Entry::at_each`] fail at `line` unless it is `right`; for actions.
pub fn expect(right: bool, line: u32) {
    if !right {
        WRONG.store(line, Relaxed);
    }
}

/// Changes an instruction, as Book II has it of code that is changed.
fn patch(place: usize, instruction: u32) {
    let place = ptr::with_exposed_provenance_mut::<u32>(place);
    // SAFETY: `Entry::find` has made it writable.
    unsafe {
        place.write_volatile(instruction);
        std::arch::asm!("dcbst 0, {0}", "sync", "icbi 0, {0}", "sync", "isync", in(reg) place);
    }
}

/// Undoes the trap.
fn mend() -> usize {
    let place = PLACE.swap(0, Relaxed);
    if place != 0 {
        patch(place, INSTRUCTION.load(Relaxed));
    }
    place
}

extern "C" fn on_trap(_: libc::c_int) {
    if mend() == 0 {
        // SAFETY: somebody else's trap.
        unsafe { libc::abort() };
    }
    // SAFETY: `trap_at` has put an `Action` there.
    let action = unsafe { std::mem::transmute::<usize, Action>(ACTION.load(Relaxed)) };
    action();
}

unsafe extern "C" {
    /// The routine of the library by which an entry reloads PMC1, if that alone has overflowed.
    fn ebb_reload_one();
}

/// Code of the library to have a signal in: the entry in EBBHR, or what that calls.
pub struct Entry {
    /// Its first instruction.
    pub address: usize,
    /// Its instructions, and what follows them.
    code: Vec<u32>,
    length: usize,
}

impl Entry {
    /// Has SIGTRAP handled, on the same stack or one of its own.
    pub fn find(flags: libc::c_int) -> Result<Self, Failure> {
        Self::of(session::ebb_registers()[1] as usize, RFEBB, flags)
    }

    /// The same for the routine that reloads PMC1.
    pub fn reload(flags: libc::c_int) -> Result<Self, Failure> {
        Self::of(ebb_reload_one as *const () as usize, BLR, flags)
    }

    /// The instructions of a function whose only return is its last instruction.
    pub fn function(address: usize, flags: libc::c_int) -> Result<Self, Failure> {
        Self::of(address, BLR, flags)
    }

    /// That at `address`, up to the instruction `last`.
    fn of(address: usize, last: u32, flags: libc::c_int) -> Result<Self, Failure> {
        static mut STACK: [u128; 4096] = [0; 4096];
        let first = address & !(PAGE - 1);
        // SAFETY: all of it is this program's code, which does not change itself otherwise; zeroes
        // are a valid sigaction; nobody else uses the stack. The jump leaves the signal as it
        // is when its handler runs: not blocked.
        let code = unsafe {
            let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
            let page = ptr::with_exposed_provenance_mut::<c_void>(first);
            ktap::os_result(libc::mprotect(page, PAGE, all))?;
            let stack = libc::stack_t {
                ss_sp: (&raw mut STACK).cast(),
                ss_flags: 0,
                ss_size: 4096 * 16,
            };
            libc::sigaltstack(&stack, ptr::null_mut());
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_trap as *const () as usize;
            action.sa_flags = flags | libc::SA_NODEFER;
            ktap::os_result(libc::sigaction(libc::SIGTRAP, &action, ptr::null_mut()))?;
            std::slice::from_raw_parts(ptr::with_exposed_provenance(address), LONGEST)
        };
        // The page is copied for this process now, not when EBBs come: the emulator would go on
        // with what it has translated of the old one.
        patch(address, code[0]);
        let length = code.iter().position(|&word| word == last);
        let length = length.ok_or("no end").or_fail("entry")? + 1;
        let code = code.to_vec();
        Ok(Self {
            address,
            code,
            length,
        })
    }

    /// Place of the call of the handler.
    #[must_use]
    pub fn call(&self) -> usize {
        let call = self.code.iter().position(|&word| word == BCTRL);
        call.unwrap_or(usize::MAX)
    }

    /// All of it.
    #[must_use]
    pub fn all(&self) -> Range<usize> {
        0..self.length
    }

    /// The code that aborts a restartable sequence: last in memory, and executed before the handler.
    #[must_use]
    pub fn abort(&self) -> Range<usize> {
        /// How many instructions are before that, and from it on.
        const BEFORE: usize = 12;
        const REST: usize = 3;
        let trap = self.code.iter().position(|&word| word == TDNEI);
        trap.map_or(0..0, |trap| trap - BEFORE..trap + REST)
    }

    /// Place of its end.
    #[must_use]
    pub fn rfebb(&self) -> usize {
        self.length - 1
    }

    /// Has the instruction `n` raise the next signal, which does `action`.
    pub fn trap_at(&self, n: usize, action: Action) {
        let place = self.address + 4 * n;
        ACTION.store(action as usize, Relaxed);
        INSTRUCTION.store(self.code[n], Relaxed);
        PLACE.store(place, Relaxed);
        patch(place, TRAP);
    }

    /// With `action` in a signal at each of the instructions `places`, does `during`, which takes
    /// EBBs, and `after` it. Of these, `skipped` are not executed.
    pub fn at_each(
        &self,
        action: Action,
        places: Range<usize>,
        skipped: usize,
        during: impl Fn() -> Outcome,
        after: impl Fn(usize) -> Outcome,
    ) -> Outcome {
        let mut missed = Vec::new();
        for n in places {
            // None comes before `during` is ready for it.
            ebb::disable();
            self.trap_at(n, action);
            let done = during();
            if mend() != 0 {
                missed.push(n);
            }
            let at = |failure| match failure {
                Failure::Fail(why) => Failure::Fail(format!("at instruction {n}: {why}")),
                skip => skip,
            };
            done.map_err(at)?;
            if missed.last() != Some(&n) {
                after(n).map_err(at)?;
            }
            let line = WRONG.load(Relaxed);
            check!(line == 0, "at instruction {n}: line {line}");
        }
        check!(missed.len() == skipped, "not at instructions {missed:?}");
        check!(ebb::spurious() == 0, "{} spurious EBBs", ebb::spurious());
        Ok(())
    }
}

/// Turns EBBs on and works until the signal has come.
pub fn until_hit() -> Outcome {
    ebb::enable()?;
    wait_until_hit()
}

/// Works until the signal has come; an alert that the emulator's driver keeps may take long.
pub fn wait_until_hit() -> Outcome {
    for _ in 0..2000 {
        session::work();
        if PLACE.load(Relaxed) == 0 {
            return Ok(());
        }
    }
    // None comes after what `during` is ready for, either.
    ebb::disable();
    Ok(())
}

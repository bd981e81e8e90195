// SPDX-License-Identifier: GPL-2.0
//! Raises a signal at each instruction of the library's entry and of the functions that it calls,
//! or at each instruction that a call executes.
//!
//! A trap that replaces the instruction raises the signal, once: the handler restores the
//! instruction. To find out which instructions a call executes, the handler moves the trap to the
//! next instruction each time.

use crate::session;
use crate::trap;
use ktap::Failure;
use ktap::OrFail;
use ktap::Outcome;
use ktap::check;
use ktap::process::Peer;
use pmu_selftests::shared;
use std::ffi::c_void;
use std::hint::black_box;
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

const TRAP: u32 = 0x7fe0_0008;
const BCTRL: u32 = 0x4e80_0421;
const RFEBB: u32 = 0x4c00_0924;
const BLR: u32 = 0x4e80_0020;
/// `tdnei r9, 0`, with which an entry compares the signature before a sequence's abort address.
const TDNEI: u32 = 0x0b09_0000;
/// Most instructions of an entry, and of a call.
const LONGEST: usize = 512;
const LONGEST_CALL: usize = 16_384;

/// Function that the signal's handler calls.
pub type Action = fn();

/// Address of the trap, or 0, and the instruction that it replaces.
static PLACE: AtomicUsize = AtomicUsize::new(0);
static INSTRUCTION: AtomicU32 = AtomicU32::new(0);
/// Address at which the signal comes, how often the instruction is executed before, and the action.
static TARGET: AtomicUsize = AtomicUsize::new(0);
static EARLIER: AtomicUsize = AtomicUsize::new(0);
static ACTION: AtomicUsize = AtomicUsize::new(0);
/// Whether calls are followed rather than interrupted, and whether one is in progress.
static FOLLOWING: AtomicBool = AtomicBool::new(false);
static IN_CALL: AtomicBool = AtomicBool::new(false);
/// Source line at which an action found a fault, or 0.
static WRONG: AtomicU32 = AtomicU32::new(0);

/// Makes [`check_expected`] fail with `line` unless `right`; for actions.
pub fn expect(right: bool, line: u32) {
    if !right {
        WRONG.store(line, Relaxed);
    }
}

/// Fails if an [`expect`] found a fault.
pub fn check_expected() -> Outcome {
    let line = WRONG.load(Relaxed);
    check!(line == 0, "line {line}");
    Ok(())
}

/// Reads an instruction.
fn word_at(place: usize) -> u32 {
    // SAFETY: Callers pass addresses of this program's code.
    unsafe { ptr::with_exposed_provenance::<u32>(place).read_volatile() }
}

/// Makes the page of an instruction writable.
fn open_page(place: usize) {
    // SAFETY: `sysconf` only reads. The page holds code of this process, which only `patch`
    // changes.
    unsafe {
        let size = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        let page = ptr::with_exposed_provenance_mut::<c_void>(place & !(size - 1));
        let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        libc::mprotect(page, size, all);
    }
}

/// Replaces an instruction, in the steps that Book II requires for modified code.
fn patch(place: usize, instruction: u32) {
    let place = ptr::with_exposed_provenance_mut::<u32>(place);
    // SAFETY: `open_page` has made the page writable.
    unsafe {
        place.write_volatile(instruction);
        std::arch::asm!("dcbst 0, {0}", "sync", "icbi 0, {0}", "sync", "isync", in(reg) place);
    }
}

/// Replaces an instruction with the trap.
fn plant(place: usize) {
    open_page(place);
    INSTRUCTION.store(word_at(place), Relaxed);
    PLACE.store(place, Relaxed);
    patch(place, TRAP);
}

/// Removes the trap; returns its address, or 0.
fn remove() -> usize {
    let place = PLACE.swap(0, Relaxed);
    if place != 0 {
        patch(place, INSTRUCTION.load(Relaxed));
    }
    place
}

/// Gives this process its own copy of the code. With pages of 64 KiB it is too late to copy a page
/// when a trap is planted: the emulator continues to use its translation of the old page until
/// another process runs.
pub fn own_code() -> Outcome {
    unsafe extern "C" {
        static __executable_start: u8;
        static etext: u8;
    }
    let (start, end) = (
        (&raw const __executable_start).addr(),
        (&raw const etext).addr(),
    );
    for place in (start.next_multiple_of(4096)..end).step_by(4096) {
        open_page(place);
        patch(place, word_at(place));
    }
    Peer::spawn(|_| Ok(()))?.join()
}

/// Instructions of a call, in memory that forked processes share.
struct Shared {
    length: AtomicUsize,
    addresses: [AtomicUsize; LONGEST_CALL],
    /// Whether the signal has come.
    hit: AtomicBool,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            length: AtomicUsize::new(0),
            addresses: [const { AtomicUsize::new(0) }; LONGEST_CALL],
            hit: AtomicBool::new(false),
        }
    }
}

fn shared() -> &'static Shared {
    static SHARED: OnceLock<&Shared> = OnceLock::new();
    SHARED.get_or_init(|| shared::value().expect("shared memory"))
}

/// Executes a trap, which marks the beginning or the end of a call.
#[unsafe(naked)]
pub extern "C" fn mark() {
    std::arch::naked_asm!("trap", "blr")
}

/// Makes the call whose instructions [`Steps`] contains.
pub fn traced<R>(call: impl FnOnce() -> R) -> R {
    mark();
    let result = call();
    mark();
    result
}

/// Ends a call that a jump out of a signal's handler has left.
pub fn leave_call() {
    IN_CALL.store(false, Relaxed);
}

type Registers = [u64; trap::REGISTERS];

/// Executes an instruction that a trap near to it would make fail each time: a larx as a load, a
/// stcx. as a store, as there is one thread. Returns `false` for other instructions.
fn do_reserving(word: u32, regs: &mut Registers) -> bool {
    let [t, a, b] = [21, 16, 11].map(|shift| (word >> shift & 31) as usize);
    let base = if a == 0 { 0 } else { regs[a] };
    let address = base.wrapping_add(regs[b]) as usize;
    // SAFETY: The program is about to access this memory in the same way.
    unsafe {
        macro_rules! load {
            ($type:ty) => {
                regs[t] = ptr::with_exposed_provenance::<$type>(address)
                    .read_volatile()
                    .into()
            };
        }
        macro_rules! store {
            ($type:ty) => {{
                let place = ptr::with_exposed_provenance_mut::<$type>(address);
                place.write_volatile(regs[t] as $type);
                // CR0 reports that the store was done.
                regs[trap::CCR] = regs[trap::CCR] & 0x0fff_ffff | 0x2000_0000;
            }};
        }
        match (word >> 26, word >> 1 & 1023) {
            (31, 52) => load!(u8),
            (31, 116) => load!(u16),
            (31, 20) => load!(u32),
            (31, 84) => load!(u64),
            (31, 694) => store!(u8),
            (31, 726) => store!(u16),
            (31, 150) => store!(u32),
            (31, 214) => store!(u64),
            _ => return false,
        }
    }
    regs[trap::NIP] += 4;
    true
}

/// Returns the address of the instruction that follows `word`, the next one. No branch here uses
/// TAR.
fn successor(word: u32, regs: &Registers) -> usize {
    let nip = regs[trap::NIP];
    let [bo, bi] = [21, 16].map(|shift| word >> shift & 31);
    let counts = bo & 4 == 0;
    let counted = !counts || (regs[trap::CTR] != 1) != (bo & 2 != 0);
    let holds = bo & 16 != 0 || regs[trap::CCR] >> (31 - bi) & 1 == u64::from(bo >> 3 & 1);
    let base = if word & 2 != 0 { 0 } else { nip };
    // Both displacements are sign-extended.
    let near = i64::from(word as i16 & !3);
    let far = i64::from((word << 6) as i32 >> 6 & !3);
    let target = match (word >> 26, word >> 1 & 1023) {
        (18, _) => base.wrapping_add_signed(far),
        (16, _) if counted && holds => base.wrapping_add_signed(near),
        (19, 16) if counted && holds => regs[trap::LR] & !3,
        (19, 528) if holds => regs[trap::CTR] & !3,
        // A prefix and its instruction have 8 bytes.
        (1, _) => nip + 8,
        _ => nip + 4,
    };
    target as usize
}

/// Records the current instruction of the call, and plants the trap at the next one.
fn follow(regs: &mut Registers) {
    loop {
        let at = regs[trap::NIP] as usize;
        if at == mark as *const () as usize {
            IN_CALL.store(false, Relaxed);
            regs[trap::NIP] += 4;
            return;
        }
        let n = shared().length.fetch_add(1, Relaxed);
        let Some(place) = shared().addresses.get(n) else {
            return;
        };
        place.store(at, Relaxed);
        let word = word_at(at);
        if !do_reserving(word, regs) {
            return plant(successor(word, regs));
        }
    }
}

extern "C" fn on_trap(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: The kernel passes a valid context, and nothing else refers to its registers.
    let regs = unsafe { &mut *trap::registers(context) };
    let (place, at) = (remove(), regs[trap::NIP] as usize);
    let target = TARGET.load(Relaxed);
    if place != at {
        if at != mark as *const () as usize {
            // SAFETY: The call ends the process, as the trap is from other code, such as a panic.
            unsafe { libc::abort() };
        }
        regs[trap::NIP] += 4;
        if !IN_CALL.fetch_xor(true, Relaxed) {
            match FOLLOWING.load(Relaxed) {
                true => plant(at + 4),
                false if target != 0 => plant(target),
                false => {}
            }
        }
    } else if FOLLOWING.load(Relaxed) {
        follow(regs);
    } else if at != target {
        plant(target);
    } else if EARLIER.load(Relaxed) != 0 {
        EARLIER.fetch_sub(1, Relaxed);
        let word = word_at(at);
        match do_reserving(word, regs) {
            true => plant(target),
            false => plant(successor(word, regs)),
        }
    } else {
        shared().hit.store(true, Relaxed);
        // SAFETY: `set` has stored an `Action`.
        let action = unsafe { std::mem::transmute::<usize, Action>(ACTION.load(Relaxed)) };
        action();
    }
}

/// Handles SIGTRAP, on the same stack or on one of its own. The handler may jump out, so the signal
/// is not blocked in it.
fn handle_trap(flags: libc::c_int) -> Outcome {
    static mut STACK: [u128; 4096] = [0; 4096];
    shared();
    // SAFETY: Zeroes are a valid sigaction, and the handler takes the three arguments; no other
    // code uses the stack.
    ktap::os_result(unsafe {
        let stack = libc::stack_t {
            ss_sp: (&raw mut STACK).cast(),
            ss_flags: 0,
            ss_size: 4096 * 16,
        };
        libc::sigaltstack(&stack, ptr::null_mut());
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_trap as *const () as usize;
        action.sa_flags = flags | libc::SA_NODEFER | libc::SA_SIGINFO;
        libc::sigaction(libc::SIGTRAP, &action, ptr::null_mut())
    })?;
    Ok(())
}

/// Makes the next signal come at `target`, after the instruction was executed `earlier` times, and
/// call `action`.
fn set(target: usize, earlier: usize, action: Action) {
    TARGET.store(target, Relaxed);
    EARLIER.store(earlier, Relaxed);
    ACTION.store(action as usize, Relaxed);
    shared().hit.store(false, Relaxed);
}

/// Returns a function that adds the number of the instruction to a failure.
fn at(n: usize) -> impl Fn(Failure) -> Failure {
    move |failure| match failure {
        Failure::Fail(why) => Failure::Fail(format!("at instruction {n}: {why}")),
        skip => skip,
    }
}

/// Code of the library in which signals come: the entry in EBBHR, or a function that it calls.
pub struct Entry {
    /// Address of the first instruction.
    pub address: usize,
    /// Instructions of the code, and what follows them in memory.
    code: Vec<u32>,
    length: usize,
}

unsafe extern "C" {
    /// Routine of the library with which an entry reloads PMC1, if only that has overflowed.
    fn ebb_reload_one();
}

impl Entry {
    /// Finds the entry. SIGTRAP is handled on the same stack, or on one of its own (`SA_ONSTACK`).
    pub fn find(flags: libc::c_int) -> Result<Self, Failure> {
        Self::of(session::ebb_registers()[1] as usize, RFEBB, flags)
    }

    /// Finds the routine that reloads PMC1.
    pub fn reload(flags: libc::c_int) -> Result<Self, Failure> {
        Self::of(ebb_reload_one as *const () as usize, BLR, flags)
    }

    /// Finds the instructions of a function whose only return is its last instruction.
    pub fn function(address: usize, flags: libc::c_int) -> Result<Self, Failure> {
        Self::of(address, BLR, flags)
    }

    /// Reads the code at `address`, up to the instruction `last`.
    fn of(address: usize, last: u32, flags: libc::c_int) -> Result<Self, Failure> {
        handle_trap(flags)?;
        let code: Vec<u32> = (0..LONGEST).map(|n| word_at(address + 4 * n)).collect();
        // The page must be copied for this process now, not when EBBs come: the emulator would
        // continue to use its translation of the old page.
        open_page(address);
        patch(address, code[0]);
        let length = code.iter().position(|&word| word == last);
        let length = length.ok_or("no end").or_fail("entry")? + 1;
        Ok(Self {
            address,
            code,
            length,
        })
    }

    /// Index of the call of the handler.
    #[must_use]
    pub fn call(&self) -> usize {
        let call = self.code.iter().position(|&word| word == BCTRL);
        call.unwrap_or(usize::MAX)
    }

    /// Indices of all instructions.
    #[must_use]
    pub fn all(&self) -> Range<usize> {
        0..self.length
    }

    /// Indices of the code that aborts a restartable sequence: last in memory, but executed before
    /// the handler.
    #[must_use]
    pub fn abort(&self) -> Range<usize> {
        /// Instructions of that code before the comparison, and from it on.
        const BEFORE: usize = 12;
        const REST: usize = 3;
        let trap = self.code.iter().position(|&word| word == TDNEI);
        trap.map_or(0..0, |trap| trap - BEFORE..trap + REST)
    }

    /// Index of the last instruction.
    #[must_use]
    pub fn rfebb(&self) -> usize {
        self.length - 1
    }

    /// Makes the instruction `n` raise the next signal, which calls `action`.
    pub fn trap_at(&self, n: usize, action: Action) {
        let place = self.address + 4 * n;
        set(place, 0, action);
        plant(place);
    }

    /// For each of the instructions `places`: makes a signal there call `action`, and calls
    /// `during`, which takes EBBs, and `after`. Fails unless all but `skipped` of the instructions
    /// were executed.
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
            // No EBB may come before `during` is ready for it.
            ebb::disable();
            self.trap_at(n, action);
            let done = during();
            if remove() != 0 {
                missed.push(n);
            }
            done.map_err(at(n))?;
            if missed.last() != Some(&n) {
                after(n).map_err(at(n))?;
            }
            check_expected().map_err(at(n))?;
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

/// Works until the signal has come; an alert that the emulator's driver holds back may take long.
pub fn wait_until_hit() -> Outcome {
    for _ in 0..2000 {
        session::work();
        if PLACE.load(Relaxed) == 0 {
            return Ok(());
        }
    }
    // No EBB may come when `during` has ended, either.
    ebb::disable();
    Ok(())
}

/// Addresses of the instructions that a call executes, in order.
pub struct Steps(Vec<usize>);

/// Runs a scenario. The compiler makes one copy of its code, as it cannot see which function is
/// called.
#[inline(never)]
fn run(scenario: &dyn Fn() -> Outcome) -> Outcome {
    black_box(scenario)()
}

impl Steps {
    /// Follows the call that `scenario` makes with [`traced`], in this process or in one that it
    /// forks.
    pub fn of(scenario: &dyn Fn() -> Outcome) -> Result<Self, Failure> {
        handle_trap(0)?;
        own_code()?;
        // The first run does what is done once per process, so that it is not recorded.
        set(0, 0, || {});
        run(scenario)?;
        shared().length.store(0, Relaxed);
        FOLLOWING.store(true, Relaxed);
        let done = run(scenario);
        FOLLOWING.store(false, Relaxed);
        remove();
        done?;
        let length = shared().length.load(Relaxed);
        check!((1..LONGEST_CALL).contains(&length), "{length} instructions");
        let addresses = shared().addresses[..length].iter();
        Ok(Self(addresses.map(|place| place.load(Relaxed)).collect()))
    }

    /// Runs `scenario` with `action` in a signal at every `stride`th of those instructions whose
    /// addresses are `wanted`; returns how many it tried.
    pub fn at_each(
        &self,
        stride: usize,
        wanted: impl Fn(usize) -> bool,
        action: Action,
        scenario: &dyn Fn() -> Outcome,
    ) -> Result<usize, Failure> {
        let (mut tried, mut missed) = (0, 0);
        for (n, &place) in self.0.iter().enumerate().step_by(stride) {
            if !wanted(place) {
                continue;
            }
            let earlier = self.0[..n].iter().filter(|&&other| other == place);
            set(place, earlier.count(), action);
            let done = run(scenario);
            remove();
            done.and_then(|()| check_expected()).map_err(at(n))?;
            tried += 1;
            missed += usize::from(!shared().hit.load(Relaxed));
        }
        // A loop may have a few more or fewer turns, depending on addresses of memory.
        check!(10 * missed <= tried, "{missed} of {tried} not executed");
        Ok(tried)
    }

    /// Runs [`at_each`](Self::at_each) for the call that `scenario` makes, at every `stride`th
    /// instruction.
    pub fn interrupt(stride: usize, action: Action, scenario: impl Fn() -> Outcome) -> Outcome {
        let steps = Self::of(&scenario)?;
        let tried = steps.at_each(stride, |_| true, action, &scenario)?;
        println!("{tried} of {} instructions", steps.0.len());
        Ok(())
    }
}

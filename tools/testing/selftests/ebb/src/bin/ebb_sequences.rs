// SPDX-License-Identifier: GPL-2.0
//! Restartable sequences (rseq) that EBBs interrupt. The kernel does not notice such an EBB, so the
//! library's entries abort the sequence.

use ebb::EbbContext;
use ebb::Save;
use ebb::reg::Mmcr0;
use ebb_selftests::each_instruction::Entry;
use ebb_selftests::each_instruction::expect;
use ebb_selftests::session;
use ebb_selftests::session::CYCLES;
use ktap::Failure;
use ktap::Outcome;
use ktap::check;
use std::process::Command;
use std::ptr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

unsafe extern "C" {
    /// Offset of a thread's `struct rseq` from its thread pointer, in the C library.
    static __rseq_offset: isize;
    /// Size of its part that is in use: 0 if it is not registered.
    static __rseq_size: u32;
}

/// `struct rseq_cs` of the kernel.
#[repr(C, align(32))]
struct Sequence {
    version: u32,
    flags: u32,
    start: u64,
    length: u64,
    abort: u64,
}

unsafe extern "C" {
    /// Stores `descriptor` to `rseq_cs`, which begins a sequence. Loops `turns` times, branches to
    /// the handler as an EBB does if `branches`, and commits with a store to `committed`. Returns
    /// 1, or 0 if it is aborted.
    fn sequence(
        rseq_cs: *mut u64,
        descriptor: *const Sequence,
        committed: *mut u64,
        turns: u64,
        branches: bool,
    ) -> u64;
    /// Descriptors: of the sequence; of code elsewhere that is never executed; of the sequence with
    /// an abort address that has no signature.
    static sequence_here: Sequence;
    static sequence_elsewhere: Sequence;
    static sequence_unsigned: Sequence;
}

std::arch::global_asm!(
    ".pushsection .text.sequence, \"ax\", @progbits",
    ".globl sequence",
    ".type sequence, @function",
    "sequence:",
    "mflr 0",
    "std 4, 0(3)",
    "1: mtctr 6",
    "2: bdnz 2b",
    "cmpdi 7, 0",
    "beq 4f",
    "mfspr 8, 806",
    "clrldi 8, 8, 1",
    "ori 8, 8, 1",
    "mtspr 806, 8",
    "bcl 20, 31, 3f",
    "3: mflr 8",
    "addi 8, 8, 4f - 3b",
    "mtspr 805, 8",
    "mfspr 8, 804",
    "mtctr 8",
    "bctr",
    "4: li 8, 1",
    "std 8, 0(5)",
    "5: mtlr 0",
    "li 3, 1",
    "6: blr",
    // The signature is an instruction that traps.
    "twui 5, 11",
    "7: mtlr 0",
    "li 3, 0",
    "8: blr",
    ".size sequence, . - sequence",
    ".popsection",
    ".pushsection .data.rel.ro.sequence, \"aw\", @progbits",
    ".balign 32",
    ".globl sequence_here",
    "sequence_here: .quad 0, 1b, 5b - 1b, 7b",
    ".globl sequence_elsewhere",
    "sequence_elsewhere: .quad 0, 5b, 6b - 5b, 7b",
    ".globl sequence_unsigned",
    "sequence_unsigned: .quad 0, 1b, 5b - 1b, 8b",
    ".popsection",
);

/// First address in the sequence that a handler has interrupted since the sequence began; if there
/// is none, the last address elsewhere.
static INTERRUPTED: AtomicU64 = AtomicU64::new(0);

fn note(context: &mut EbbContext<'_>) {
    if !has_interrupted() {
        INTERRUPTED.store(context.interrupted(), Relaxed);
    }
}

/// Returns whether a handler has interrupted the sequence.
fn has_interrupted() -> bool {
    let address = INTERRUPTED.load(Relaxed);
    // SAFETY: The linker defines the descriptor, and the program only reads it.
    let (start, length) = unsafe { (sequence_here.start, sequence_here.length) };
    address.wrapping_sub(start) < length
}

/// Returns the address of this thread's `rseq_cs`.
fn rseq_cs() -> *mut u64 {
    const RSEQ_CS: isize = 8;
    let thread: *mut u8;
    // SAFETY: The instruction reads the thread pointer, at whose offset the C library has the area.
    unsafe {
        std::arch::asm!("mr {}, 13", out(reg) thread, options(nomem, nostack, preserves_flags));
        thread.offset(__rseq_offset + RSEQ_CS).cast()
    }
}

/// Runs the sequence; returns whether it has committed.
fn commits(descriptor: *const Sequence, turns: u64, branches: bool) -> Result<bool, Failure> {
    let mut committed = 0;
    INTERRUPTED.store(0, Relaxed);
    // SAFETY: The function follows the ABI, and stores to the two words only; if it branches to the
    // handler, EBBHR has the library's entry.
    let result = unsafe { sequence(rseq_cs(), descriptor, &mut committed, turns, branches) };
    check!(result == committed, "{result}, but {committed} was stored");
    Ok(result != 0)
}

fn begin(save: Save) -> Result<ebb::Event, Failure> {
    // SAFETY: The C library sets the variable before the program begins.
    if unsafe { __rseq_size } == 0 {
        ktap::skip("the C library has registered no restartable sequences")?;
    }
    let event = session::schedule(&ebb::event(CYCLES))?;
    // SAFETY: The handler uses general registers only.
    unsafe { ebb::install_saving(save, note)? };
    Ok(event)
}

fn is_clear() -> bool {
    // SAFETY: The area lives as long as the thread.
    unsafe { rseq_cs().read_volatile() == 0 }
}

/// An EBB aborts the sequence, and its handler sees the interrupted address in it.
fn aborted(save: Save) -> Outcome {
    let event = begin(save)?;
    for turns in 1..20 {
        check!(
            !commits(&raw const sequence_here, turns, true)?,
            "committed"
        );
        check!(has_interrupted(), "{:#x}", INTERRUPTED.load(Relaxed));
        check!(is_clear(), "rseq_cs is not cleared");
        check!(ebb::count() == turns, "{} EBBs", ebb::count());
    }
    event.close();
    Ok(())
}

/// An EBB outside of the sequence ends it, as in the kernel: the program continues, and `rseq_cs`
/// is cleared.
fn outside(save: Save) -> Outcome {
    let event = begin(save)?;
    for descriptor in [&raw const sequence_elsewhere, ptr::null()] {
        check!(commits(descriptor, 1, true)?, "aborted");
        check!(has_interrupted(), "{:#x}", INTERRUPTED.load(Relaxed));
        check!(is_clear(), "rseq_cs is not cleared");
    }
    event.close();
    Ok(())
}

/// Instructions of an entry up to the one that reads `rseq_cs`; `rseq.rs` has the same number.
const UNTIL_KNOWN: usize = 15;

fn disable_and_enable() {
    ebb::disable();
    expect(ebb::enable().is_ok(), line!());
}

/// An EBB aborts the sequence even if a signal comes at an instruction of the entry after `rseq_cs`
/// was read, and even if the signal's handler turns EBBs off and on. For an earlier signal the
/// kernel clears the word.
fn aborted_despite_signals(save: Save) -> Outcome {
    let event = begin(save)?;
    let entry = Entry::find(0)?;
    let places = UNTIL_KNOWN..entry.all().end;
    let aborted = || {
        // Without an alert, each instruction of the entry is executed.
        Mmcr0(0).write();
        check!(!commits(&raw const sequence_here, 1, true)?, "committed");
        check!(
            has_interrupted() && is_clear(),
            "{:#x}",
            INTERRUPTED.load(Relaxed)
        );
        Ok(())
    };
    for action in [|| {}, disable_and_enable] {
        entry.at_each(action, places.clone(), 0, aborted, |_| Ok(()))?;
        check!(!entry.abort().is_empty(), "the entry aborts nothing");
        entry.at_each(action, entry.abort(), 0, aborted, |_| Ok(()))?;
    }
    event.close();
    Ok(())
}

/// Returns how often the kernel has switched from this thread to others.
fn switches() -> Result<i64, Failure> {
    // SAFETY: Zeroes are a valid value, which the call replaces.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        ktap::os_result(libc::getrusage(libc::RUSAGE_THREAD, &mut usage))?;
        Ok(usage.ru_nvcsw + usage.ru_nivcsw)
    }
}

/// EBBs of overflows come anywhere. A sequence that one interrupts does not commit; others commit
/// unless the kernel has aborted them.
fn overflows(save: Save) -> Outcome {
    const PERIOD: u32 = 3_000;
    const RUNS: u64 = 500;
    let event = begin(save)?;
    session::arm(PERIOD)?;
    let mut aborts = 0;
    for run in 0..RUNS {
        let before = switches()?;
        // Runs are from much shorter to longer than a period.
        let turns = 1 + run * 37 % 8_000;
        let committed = commits(&raw const sequence_here, turns, false)?;
        let interrupted = has_interrupted();
        if switches()? == before {
            check!(
                committed != interrupted,
                "run {run}: interrupted: {interrupted}"
            );
            aborts += u64::from(interrupted);
        }
    }
    println!("{aborts} of {RUNS} sequences aborted");
    ebb::disable();
    event.close();
    Ok(())
}

/// Argument of a program for which the C library registers no area.
const UNREGISTERED: &str = "unregistered";

/// Runs in that program: its EBBs continue.
fn without_area() -> Outcome {
    let event = session::schedule(&ebb::event(CYCLES))?;
    session::install(note)?;
    // SAFETY: The C library sets the variable before the program begins.
    let size = unsafe { __rseq_size };
    check!(size == 0, "__rseq_size is {size}");
    check!(commits(&raw const sequence_here, 1, true)?, "aborted");
    check!(
        has_interrupted() && ebb::count() == 1,
        "{} EBBs",
        ebb::count()
    );
    event.close();
    Ok(())
}

fn unregistered() -> Outcome {
    let mut program = Command::new("/proc/self/exe");
    program.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
    let output = program.arg(UNREGISTERED).output()?;
    check!(output.status.success(), "{output:?}");
    Ok(())
}

/// A sequence whose abort address has no signature ends the program.
fn no_signature() -> Outcome {
    // SAFETY: The child has one thread, as this test has, and ends below.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: The call sets the default action, so there is no handler.
        unsafe { libc::signal(libc::SIGTRAP, libc::SIG_DFL) };
        let event = begin(Save::Gprs);
        let committed = commits(&raw const sequence_unsigned, 1, true);
        println!("# {} {committed:?}", event.is_ok());
        // SAFETY: The call takes no pointers, and ends the child only.
        unsafe { libc::_exit(1) };
    }
    let mut status = 0;
    // SAFETY: `status` lives through the call.
    ktap::os_result(unsafe { libc::waitpid(child, &mut status, 0) })?;
    let trapped = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGTRAP;
    check!(trapped, "status {status:#x}");
    Ok(())
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some(UNREGISTERED) {
        if let Err(failure) = without_area() {
            println!("{failure:?}");
            std::process::exit(1);
        }
        return;
    }
    ktap::run(ktap::tests! {
        first: session::require_ebb;
        aborted_gprs = aborted(Save::Gprs), aborted_all_gprs = aborted(Save::AllGprs),
        aborted_full = aborted(Save::Full),
        outside_gprs = outside(Save::Gprs), outside_full = outside(Save::Full),
        despite_signals_gprs = aborted_despite_signals(Save::Gprs),
        despite_signals_full = aborted_despite_signals(Save::Full),
        overflows_gprs = overflows(Save::Gprs), overflows_full = overflows(Save::Full),
        unregistered, no_signature,
    })
}

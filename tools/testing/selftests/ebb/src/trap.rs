// SPDX-License-Identifier: GPL-2.0
//! Checks whether an access to a register causes SIGILL.
//!
//! The calling thread makes the access, because the permission is this thread's. The signal handler
//! counts, and steps over the instruction.
//!
//! Most tests try writes, which trap with the kernel's built-in driver too.

use ktap::Failure;
use ktap::Outcome;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

static TRAPS: AtomicU32 = AtomicU32::new(0);

/// Index of the next instruction's address in the registers of a signal's context, which begin with
/// the GPRs (arch/powerpc/include/uapi/asm/ptrace.h).
pub const NIP: usize = 32;
/// Index of CTR there.
pub const CTR: usize = 35;
/// Index of LR there.
pub const LR: usize = 36;
/// Index of CR there.
pub const CCR: usize = 38;
/// Number of registers there.
pub const REGISTERS: usize = 44;

/// Returns the registers with which the program continues after a signal.
///
/// # Safety
///
/// `context` must be the pointer that the kernel passed to the signal's handler.
#[must_use]
pub unsafe fn registers(context: *mut libc::c_void) -> *mut [u64; REGISTERS] {
    /// Byte offset of `uc_mcontext.regs` in the kernel's `struct ucontext` (asm/ucontext.h,
    /// sigcontext.h), which the libc crate does not describe.
    const REGS_OFFSET: usize = 168 + 56;
    // SAFETY: The caller guarantees that the kernel passed `context`.
    unsafe { *context.byte_add(REGS_OFFSET).cast() }
}

extern "C" fn step_over(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    TRAPS.fetch_add(1, Relaxed);
    // SAFETY: The kernel passed the context, and nothing else refers to its registers.
    unsafe { (*registers(context))[NIP] += 4 };
}

/// Installs the signal handler.
fn catch(flags: libc::c_int) -> Outcome {
    // SAFETY: Zeroes are a valid sigaction; the handler takes the three arguments that SA_SIGINFO
    // announces.
    ktap::os_result(unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = step_over as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | flags;
        libc::sigaction(libc::SIGILL, &action, std::ptr::null_mut())
    })?;
    Ok(())
}

/// Makes every instruction that traps have no effect from now on, even in an EBB handler that
/// interrupts the signal's.
pub fn step_over_all() -> Outcome {
    catch(libc::SA_NODEFER)
}

/// Runs `access`, which should have one instruction that may trap; returns whether it did.
pub fn traps(access: fn()) -> Result<bool, Failure> {
    catch(0)?;
    let before = TRAPS.load(Relaxed);
    access();
    Ok(TRAPS.load(Relaxed) != before)
}

/// Reads PMC1.
pub fn read_pmc1() {
    std::hint::black_box(ebb::Pmc::Pmc1.read());
}

/// Writes PMC1.
pub fn write_pmc1() {
    ebb::Pmc::Pmc1.write(0);
}

/// Writes PMC2, which no event of most tests counts on.
pub fn write_pmc2() {
    ebb::Pmc::Pmc2.write(0);
}

/// Writes MMCR0.
pub fn write_mmcr0() {
    ebb::reg::Mmcr0::FC.write();
}

// SPDX-License-Identifier: GPL-2.0
//! The handler of EBBs, in assembly, as it must survive what the rest of the program writes to
//! any register: it needs nothing but a stack. And `rfebb` where no handler runs.
//!
//! BESCR\[GE\] is on only while EBBHR has this handler's address.

use std::arch::asm;
use std::arch::global_asm;
use std::mem::offset_of;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use ebb::reg::Bescr;
use ebb::reg::Mmcr0;

use crate::registers::EBB;

/// What the handler and the program tell each other.
#[repr(C)]
struct Shared {
    /// EBBs of this process so far.
    count: AtomicU64,
    /// The last that sets counters going again.
    limit: AtomicU64,
    /// What it gives counters that are negative.
    reload: AtomicU64,
}

#[unsafe(no_mangle)]
static FUZZ_SHARED: Shared = Shared {
    count: AtomicU64::new(0),
    limit: AtomicU64::new(0),
    reload: AtomicU64::new(0),
};

unsafe extern "C" {
    fn fuzz_handler();
}

// A frame below what the interrupted code has below its stack pointer, so that a signal's
// handler on top leaves both alone. Each access may be stepped over and then leaves its register.
global_asm!(
    ".pushsection .text.fuzz_handler, \"ax\", @progbits",
    ".globl fuzz_handler",
    ".type fuzz_handler, @function",
    "fuzz_handler:",
    "stdu 1, -768(1)",
    "std 3, 32(1)",
    "std 4, 40(1)",
    "std 5, 48(1)",
    "std 6, 56(1)",
    "mflr 3",
    "mfcr 4",
    "std 3, 64(1)",
    "std 4, 72(1)",
    "bcl 20, 31, 2f",
    "2: mflr 4",
    "addis 4, 4, FUZZ_SHARED - 2b@ha",
    "addi 4, 4, FUZZ_SHARED - 2b@l",
    // Threads of a process may miss one of each other's here.
    "ld 5, {count}(4)",
    "addi 5, 5, 1",
    "std 5, {count}(4)",
    "ld 6, {limit}(4)",
    "cmpld 5, 6",
    "bgt 4f",
    "ld 5, {reload}(4)",
    ".irp pmc, 771, 772, 773, 774, 775, 776",
    "li 6, 0",
    "mfspr 6, \\pmc",
    "cmpwi 6, 0",
    "bge . + 8",
    "mtspr \\pmc, 5",
    ".endr",
    "lis 5, {fc}@h",
    "mtspr 779, 5",
    // PMEO off, PME on.
    "li 3, 1",
    "mfspr 5, 806",
    "sldi 6, 3, 32",
    "andc 5, 5, 3",
    "or 5, 5, 6",
    "mtspr 806, 5",
    "lis 5, {pmae}@h",
    "mtspr 779, 5",
    "b 5f",
    // No more: the counters stand, PME and PMEO are off.
    "4: lis 5, {fc}@h",
    "mtspr 779, 5",
    "li 3, 1",
    "mfspr 5, 806",
    "sldi 6, 3, 32",
    "or 6, 6, 3",
    "andc 5, 5, 6",
    "mtspr 806, 5",
    "5: ld 3, 64(1)",
    "ld 4, 72(1)",
    "mtlr 3",
    "mtcrf 255, 4",
    "ld 3, 32(1)",
    "ld 4, 40(1)",
    "ld 5, 48(1)",
    "ld 6, 56(1)",
    "addi 1, 1, 768",
    "rfebb 1",
    ".size fuzz_handler, . - fuzz_handler",
    ".popsection",
    count = const offset_of!(Shared, count),
    limit = const offset_of!(Shared, limit),
    reload = const offset_of!(Shared, reload),
    fc = const Mmcr0::FC.0,
    pmae = const Mmcr0::PMAE.0,
);

/// The handler's address, the same in all processes.
pub fn address() -> u64 {
    fuzz_handler as *const () as u64
}

/// EBBs of this process so far.
pub fn count() -> u64 {
    FUZZ_SHARED.count.load(Relaxed)
}

/// Forgets those of the process that this one was forked from.
pub fn forget() {
    FUZZ_SHARED.count.store(0, Relaxed);
    FUZZ_SHARED.limit.store(0, Relaxed);
}

/// Has the handler go on for `ebbs` more, with `reload` in counters that are negative.
pub fn allow(ebbs: u64, reload: u32) {
    FUZZ_SHARED.limit.store(count() + ebbs, Relaxed);
    FUZZ_SHARED.reload.store(reload.into(), Relaxed);
}

/// Writes BESCR.
pub fn write_bescr(value: Bescr) {
    // SAFETY: EBBHR has the handler's address wherever this is called with GE.
    unsafe { EBB[2].write(value.0) };
}

/// Puts `address` into EBBHR and lets EBBs be off.
pub fn install(address: u64) {
    write_bescr(Bescr(0));
    // SAFETY: GE is off.
    unsafe { EBB[0].write(address) };
}

/// `rfebb` outside of a handler, to the next instruction: a branch, and BESCR\[GE\] becomes
/// `enable`.
pub fn return_to_here(enable: bool) {
    write_bescr(Bescr(0));
    macro_rules! rfebb {
        ($s:literal) => {
            // SAFETY: no EBB comes between EBBRR and rfebb, as GE is off, and rfebb branches to the
            // label behind it. In QEMU its operand is a register: r0 is 0, r1 is not.
            unsafe {
                asm!(
                    "mflr {lr}",
                    "bcl 20, 31, 2f",
                    "2: mflr {at}",
                    "mtlr {lr}",
                    "addi {at}, {at}, 3f - 2b",
                    "mtspr 805, {at}",
                    "li 0, 0",
                    concat!("rfebb ", $s),
                    "3:",
                    lr = out(reg_nonzero) _,
                    at = out(reg_nonzero) _,
                    out("r0") _,
                )
            }
        };
    }
    match enable {
        true => rfebb!("1"),
        false => rfebb!("0"),
    }
}

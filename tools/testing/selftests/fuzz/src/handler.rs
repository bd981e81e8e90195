// SPDX-License-Identifier: GPL-2.0
//! The handler of EBBs. It is in assembly and needs only a stack, as it must survive whatever the
//! rest of the program writes to any register. Also `rfebb` outside of a handler.
//!
//! BESCR\[GE\] is set only while EBBHR has this handler's address.

use std::arch::asm;
use std::arch::global_asm;
use std::mem::offset_of;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use ebb::reg::Bescr;
use ebb::reg::Mmcr0;

use crate::registers::EBB;

/// Data that the handler and the program share.
#[repr(C)]
struct Shared {
    /// EBBs of this process so far.
    count: AtomicU64,
    /// Number of the last EBB after which the counters run again.
    limit: AtomicU64,
    /// Value that the handler writes to counters that are negative.
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

// The frame lies below the area under the stack pointer that the interrupted code may use, so that
// the handler of a signal on top leaves both alone. An access that is refused is stepped over and
// leaves its register unchanged.
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
    // Two threads of a process may count one EBB instead of two here.
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
    // Past the limit: the counters stay frozen, and PME and PMEO are off.
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

/// Returns the handler's address, which is the same in all processes.
pub fn address() -> u64 {
    fuzz_handler as *const () as u64
}

/// Returns the number of EBBs of this process so far.
pub fn count() -> u64 {
    FUZZ_SHARED.count.load(Relaxed)
}

/// Sets the count of a forked process to 0.
pub fn forget() {
    FUZZ_SHARED.count.store(0, Relaxed);
    FUZZ_SHARED.limit.store(0, Relaxed);
}

/// Lets the handler restart the counters for `ebbs` more EBBs, with `reload` in negative counters.
pub fn allow(ebbs: u64, reload: u32) {
    FUZZ_SHARED.limit.store(count() + ebbs, Relaxed);
    FUZZ_SHARED.reload.store(reload.into(), Relaxed);
}

/// Writes BESCR.
pub fn write_bescr(value: Bescr) {
    // SAFETY: Callers set GE only while EBBHR has the handler's address.
    unsafe { EBB[2].write(value.0) };
}

/// Turns EBBs off and writes `address` to EBBHR.
pub fn install(address: u64) {
    write_bescr(Bescr(0));
    // SAFETY: GE is off, so nothing branches to the address.
    unsafe { EBB[0].write(address) };
}

/// Executes `rfebb` outside of a handler, to the next instruction: a branch that sets BESCR\[GE\]
/// to `enable`.
pub fn return_to_here(enable: bool) {
    write_bescr(Bescr(0));
    macro_rules! rfebb {
        ($s:literal) => {
            // SAFETY: GE is off, so no EBB changes EBBRR before rfebb, which branches to the label
            // after it. QEMU takes the operand of rfebb for a register: r0 is 0, r1 is not.
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

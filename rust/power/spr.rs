// SPDX-License-Identifier: GPL-2.0

//! Access to special purpose registers by number.
//!
//! The kernel runs in privileged state with the PMU's registers open to it (the hypervisor opens
//! them in HFSCR), so reading and writing them is an instruction that cannot fault. What is written
//! may freeze counters or raise a PMI, but touches no memory, hence the functions are safe.
//!
//! Numbers: Power ISA 3.1B, Book III, "Move To/From System Register Instructions".

use core::arch::asm;

/// Reads SPR `N`.
#[inline(always)]
pub(super) fn read<const N: u32>() -> u64 {
    let value: u64;
    // SAFETY: `mfspr` of a PMU register has no effect but on its target.
    unsafe { asm!("mfspr {}, {}", out(reg) value, const N, options(nostack, preserves_flags)) };
    value
}

/// Writes SPR `N`.
#[inline(always)]
pub(super) fn write<const N: u32>(value: u64) {
    // SAFETY: `mtspr` of a PMU register changes nothing that Rust knows of. As a memory clobber it
    // stays in order with the accesses around it.
    unsafe { asm!("mtspr {}, {}", const N, in(reg) value, options(nostack, preserves_flags)) };
}

/// Reads the machine state register.
#[inline(always)]
pub(super) fn read_msr() -> u64 {
    let value: u64;
    // SAFETY: `mfmsr` has no effect but on its target.
    unsafe { asm!("mfmsr {}", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// Waits until earlier writes to SPRs took effect: when this returns, a frozen counter counts no
/// more and an alert that was enabled before has interrupted.
#[inline(always)]
pub(super) fn synchronize() {
    // SAFETY: Barriers only.
    unsafe { asm!("sync", "isync", options(nostack, preserves_flags)) };
}

/// Discards the entries of the BHRB.
#[inline(always)]
pub(super) fn clear_bhrb() {
    // SAFETY: `clrbhrb` (its encoding, as the assembler may not be set to ISA 2.07) changes the
    // BHRB only.
    unsafe { asm!(".long 0x7c00035c", options(nomem, nostack, preserves_flags)) };
}

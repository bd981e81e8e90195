// SPDX-License-Identifier: MIT OR Apache-2.0
//! Special purpose registers (SPRs) of the EBB facility and of the performance monitor, as problem
//! state sees them.
//!
//! The numbers are those of the Power ISA v3.1, Book II, "Event-Based Branch Facility", and Book
//! III, "Performance Monitor Facility" (problem state numbers). The EBB registers are always
//! accessible. Those of the performance monitor are writable only while MMCR0\[PMCC\] allows it,
//! that is while an EBB event of this thread is scheduled; otherwise an access raises SIGILL. (With
//! the kernel's built-in driver before ISA v3.1, a read returns some other program's value
//! instead.) In a handler such an access has no effect and reads 0 (see
//! [`evicted`](crate::evicted)).

use crate::fixup::fixed_up;
use crate::fixup::fixed_up_in_handler;
use crate::fixup::fixed_up_pair;

/// TB, the time base, read only.
pub const TB: u16 = 268;
/// SIER, Sampled Instruction Event Register.
pub const SIER: u16 = 768;
/// MMCR2; problem state can write only its freeze-in-problem-state bits.
pub const MMCR2: u16 = 769;
/// MMCRA; problem state sees and writes the threshold counter only.
pub const MMCRA: u16 = 770;
/// PMC1; PMC2 to PMC6 follow.
pub const PMC1: u16 = 771;
/// PMC2.
pub const PMC2: u16 = 772;
/// PMC3.
pub const PMC3: u16 = 773;
/// PMC4.
pub const PMC4: u16 = 774;
/// PMC5, instructions completed.
pub const PMC5: u16 = 775;
/// PMC6, cycles.
pub const PMC6: u16 = 776;
/// MMCR0; problem state can access only FC, PMAE and PMAO.
pub const MMCR0: u16 = 779;
/// SIAR, Sampled Instruction Address Register.
pub const SIAR: u16 = 780;
/// SDAR, Sampled Data Address Register.
pub const SDAR: u16 = 781;
/// MMCR1, read only.
pub const MMCR1: u16 = 782;
/// SIER2 (ISA v3.1), read only.
pub const SIER2: u16 = 736;
/// SIER3 (ISA v3.1), read only.
pub const SIER3: u16 = 737;
/// MMCR3 (ISA v3.1), read only.
pub const MMCR3: u16 = 738;
/// EBBHR, Event-Based Branch Handler Register.
pub const EBBHR: u16 = 804;
/// EBBRR, Event-Based Branch Return Register.
pub const EBBRR: u16 = 805;
/// BESCR, Branch Event Status and Control Register.
pub const BESCR: u16 = 806;
/// TAR, Target Address Register.
pub const TAR: u16 = 815;

/// Reads the SPR with the number `N`.
///
/// The compiler orders it relative to other accesses like a volatile access.
///
/// # Safety
///
/// Reading `N` has no side effect that the rest of the program does not expect. A register that is
/// not accessible raises SIGILL, which does not violate this contract.
#[inline(always)]
pub unsafe fn read<const N: u16>() -> u64 {
    let value: u64;
    // SAFETY: mfspr changes only its target register, and the caller guarantees that reading `N` is
    // fine. No `nomem`: a counter must be read at this point, not before a neighbouring store.
    unsafe {
        core::arch::asm!(fixed_up_in_handler!("mfspr {0}, {n}"), out(reg) value, n = const N,
            options(nostack, preserves_flags));
    }
    value
}

/// Writes the SPR with the number `N`.
///
/// # Safety
///
/// The write does not break a guarantee of the program: a value for EBBHR is the address of an
/// entry that preserves the registers, and BESCR\[GE\] is set only if EBBHR holds such an address.
#[inline(always)]
pub unsafe fn write<const N: u16>(value: u64) {
    // SAFETY: The caller guarantees that the register may be written with this value.
    unsafe {
        core::arch::asm!(fixed_up_in_handler!("mtspr {n}, {0}"), in(reg) value, n = const N,
            options(nostack, preserves_flags));
    }
}

/// Reads an SPR like [`read`], but reads 0 if the register is not accessible, also outside of a
/// handler.
///
/// # Safety
///
/// Reading `N` has no side effect that the rest of the program does not expect.
#[inline(always)]
pub(crate) unsafe fn read_always<const N: u16>() -> u64 {
    let value: u64;
    // SAFETY: mfspr changes only its target register, and the caller guarantees that reading `N` is
    // fine.
    unsafe {
        core::arch::asm!(fixed_up!("mfspr {0}, {n}"), out(reg) value, n = const N,
            options(nostack, preserves_flags));
    }
    value
}

/// Writes an SPR like [`write()`], but without effect if the register is not accessible, also
/// outside of a handler.
///
/// # Safety
///
/// The write does not break a guarantee of the program; see [`write()`].
#[inline(always)]
pub(crate) unsafe fn write_always<const N: u16>(value: u64) {
    // SAFETY: The caller guarantees that the register may be written with this value.
    unsafe {
        core::arch::asm!(fixed_up!("mtspr {n}, {0}"), in(reg) value, n = const N,
            options(nostack, preserves_flags));
    }
}

/// Reads an SPR outside of a handler. Returns `None` if the register is not accessible.
///
/// # Safety
///
/// Reading `N` has no side effect that the rest of the program does not expect.
#[inline(always)]
pub(crate) unsafe fn read_if_there<const N: u16>() -> Option<u64> {
    let (value, there): (u64, u64);
    // SAFETY: mfspr changes only its target register, and the caller guarantees that reading `N` is
    // fine. If it traps, the fixup also skips the last `li`.
    unsafe {
        core::arch::asm!("li {1}, 0", fixed_up_pair!("mfspr {0}, {n}"), "li {1}, 1",
            out(reg) value, out(reg) there, n = const N, options(nostack, preserves_flags));
    }
    (there != 0).then_some(value)
}

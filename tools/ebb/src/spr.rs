// SPDX-License-Identifier: MIT OR Apache-2.0
//! Special purpose registers of the EBB facility and of the performance
//! monitor, as problem state sees them.
//!
//! The numbers are those of the Power ISA v3.1, Book II, "Event-Based Branch
//! Facility", and Book III, "Performance Monitor Facility" (problem state numbers). The EBB
//! registers are always accessible. The performance monitor's are writable only
//! while MMCR0\[PMCC\] allows it, that is while an EBB event of this thread is
//! scheduled; otherwise an access ends in SIGILL. (With the kernel's built-in driver,
//! before ISA v3.1, a read gives some other program's value.) In a handler such
//! an access has no effect and reads 0 (see [`evicted`](crate::evicted)).

use crate::fixup::fixed_up;
use crate::fixup::fixed_up_in_handler;
use crate::fixup::fixed_up_pair;

/// TB, the time base, read only.
pub const TB: u16 = 268;
/// SIER, Sampled Instruction Event Register.
pub const SIER: u16 = 768;
/// MMCR2; problem state may write its freeze-in-problem-state bits only.
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
/// MMCR0; problem state sees and writes FC, PMAE and PMAO only.
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

/// Reads the SPR of number `N`.
///
/// Ordered against other accesses by the compiler as a volatile access is.
///
/// # Safety
///
/// Reading `N` must have no effect that the rest of the program does not
/// expect. A register that is not accessible raises SIGILL, which is no
/// violation of this contract.
#[inline(always)]
pub unsafe fn read<const N: u16>() -> u64 {
    let value: u64;
    // SAFETY: mfspr changes nothing but its target; the caller vouches for the
    // register. No `nomem`: a counter's value must be read where the program
    // says, not before a neighbouring store.
    unsafe {
        core::arch::asm!(fixed_up_in_handler!("mfspr {0}, {n}"), out(reg) value, n = const N,
            options(nostack, preserves_flags));
    }
    value
}

/// Writes the SPR of number `N`.
///
/// # Safety
///
/// The write must leave every promise of the program standing: for EBBHR the
/// value is the address of an entry that keeps the registers, for BESCR\[GE\]
/// such an address is in EBBHR.
#[inline(always)]
pub unsafe fn write<const N: u16>(value: u64) {
    // SAFETY: the caller vouches for the register and the value.
    unsafe {
        core::arch::asm!(fixed_up_in_handler!("mtspr {n}, {0}"), in(reg) value, n = const N,
            options(nostack, preserves_flags));
    }
}

/// [`read`] that reads 0 also outside of a handler if the register is not accessible.
///
/// # Safety
///
/// As [`read`].
#[inline(always)]
pub(crate) unsafe fn read_always<const N: u16>() -> u64 {
    let value: u64;
    // SAFETY: as in `read`.
    unsafe {
        core::arch::asm!(fixed_up!("mfspr {0}, {n}"), out(reg) value, n = const N,
            options(nostack, preserves_flags));
    }
    value
}

/// [`write()`] that has no effect also outside of a handler if the register is not accessible.
///
/// # Safety
///
/// As [`write()`].
#[inline(always)]
pub(crate) unsafe fn write_always<const N: u16>(value: u64) {
    // SAFETY: the caller vouches for the register and the value.
    unsafe {
        core::arch::asm!(fixed_up!("mtspr {n}, {0}"), in(reg) value, n = const N,
            options(nostack, preserves_flags));
    }
}

/// [`read`] outside of a handler; `None` if the register is not accessible.
///
/// # Safety
///
/// As [`read`].
#[inline(always)]
pub(crate) unsafe fn read_if_there<const N: u16>() -> Option<u64> {
    let (value, there): (u64, u64);
    // SAFETY: as in `read`. Where that traps, the last `li` is left out.
    unsafe {
        core::arch::asm!("li {1}, 0", fixed_up_pair!("mfspr {0}, {n}"), "li {1}, 1",
            out(reg) value, out(reg) there, n = const N, options(nostack, preserves_flags));
    }
    (there != 0).then_some(value)
}

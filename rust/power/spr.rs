// SPDX-License-Identifier: GPL-2.0

//! Access to special purpose registers by number, and to the kernel's data of this CPU, the paca.
//!
//! The functions are safe, but for that which sets a mask of interrupts. The kernel runs in
//! privileged state and the hypervisor has opened the PMU's registers to it (HFSCR), so reading and
//! writing them cannot fault. A write may freeze counters or raise a PMI, but changes no memory.
//!
//! Numbers: Power ISA 3.1B, Book III, "Move To/From System Register Instructions".

use super::bindings;
use core::{
    arch::asm,
    mem::MaybeUninit, //
};

/// Number of entries of the BHRB.
pub(super) const BHRB_ENTRIES: usize = 32;

/// Reads SPR `N`.
#[inline]
pub(super) fn read<const N: u32>() -> u64 {
    let value: u64;
    // SAFETY: `mfspr` of a PMU register has no effect but on its target.
    unsafe { asm!("mfspr {}, {}", out(reg) value, const N, options(nostack, preserves_flags)) };
    value
}

/// Writes SPR `N`.
#[inline]
pub(super) fn write<const N: u32>(value: u64) {
    // SAFETY: `mtspr` of a PMU register changes nothing that Rust knows of. Without `nomem` the
    // compiler keeps its order with accesses to memory.
    unsafe { asm!("mtspr {}, {}", const N, in(reg) value, options(nostack, preserves_flags)) };
}

/// The mask of interrupts that are off for the kernel (`irq_soft_mask` of the paca).
#[inline]
pub(super) fn irq_soft_mask() -> u8 {
    let mask: u64;
    // SAFETY: Register 13 has the address of this CPU's paca, whatever CPU that is.
    unsafe {
        asm!(
            "lbz {}, {}(13)",
            out(reg) mask,
            const bindings::EBB_PMU_PACA_IRQ_SOFT_MASK,
            options(nostack, preserves_flags)
        )
    };
    // CAST: A byte was loaded.
    mask as u8
}

/// Sets the mask.
///
/// # Safety
///
/// Interrupts must be off, with the old mask and with the new one: those that were masked and came
/// are not replayed.
#[inline]
pub(super) unsafe fn set_irq_soft_mask(mask: u8) {
    // SAFETY: Register 13 as in `irq_soft_mask`; the caller guarantees that nothing waits for the
    // mask. Without `nomem` the compiler keeps accesses to memory where they are.
    unsafe {
        asm!(
            "stb {}, {}(13)",
            in(reg) u64::from(mask),
            const bindings::EBB_PMU_PACA_IRQ_SOFT_MASK,
            options(nostack, preserves_flags)
        )
    };
}

/// Whether a PMI came while it was masked, and waits (`pmi_irq_pending()`).
#[inline]
pub(super) fn pmi_irq_pending() -> bool {
    let happened: u64;
    // SAFETY: Register 13 as in `irq_soft_mask`.
    unsafe {
        asm!(
            "lbz {}, {}(13)",
            out(reg) happened,
            const bindings::EBB_PMU_PACA_IRQ_HAPPENED,
            options(nostack, preserves_flags)
        )
    };
    happened & u64::from(bindings::EBB_PMU_PACA_IRQ_PMI) != 0
}

/// Notes that none waits any more (`clear_pmi_irq_pending()`).
///
/// # Safety
///
/// MSR\[EE\] must be off: the handler of an interrupt that is masked writes the same byte.
#[inline]
pub(super) unsafe fn clear_pmi_irq_pending() {
    // SAFETY: Register 13 as in `irq_soft_mask`; the caller guarantees that nobody else writes the
    // byte.
    unsafe {
        asm!(
            "lbz {0}, {1}(13)",
            "andi. {0}, {0}, {2}",
            "stb {0}, {1}(13)",
            out(reg) _,
            const bindings::EBB_PMU_PACA_IRQ_HAPPENED,
            const !bindings::EBB_PMU_PACA_IRQ_PMI,
            out("cr0") _,
            options(nostack)
        )
    };
}

/// `yield_count` of this CPU's lppaca; 0 if no hypervisor keeps one.
#[cfg(CONFIG_PPC_PSERIES)]
#[inline]
pub(super) fn yield_count() -> u32 {
    let lppaca: *const u8;
    // SAFETY: Register 13 as in `irq_soft_mask`.
    unsafe {
        asm!(
            "ld {}, {}(13)",
            out(reg) lppaca,
            const bindings::EBB_PMU_PACA_LPPACA,
            options(nostack, preserves_flags)
        )
    };
    if lppaca.is_null() {
        return 0;
    }
    // CAST: The offset of a field, which is aligned.
    let count = lppaca.wrapping_add(bindings::EBB_PMU_LPPACA_YIELD_COUNT as usize);
    // SAFETY: The lppaca of a CPU stays where it is. The hypervisor writes the word while it has
    // taken the CPU away.
    u32::from_be(unsafe { count.cast::<u32>().read_volatile() })
}

/// As there is no hypervisor.
#[cfg(not(CONFIG_PPC_PSERIES))]
pub(super) fn yield_count() -> u32 {
    0
}

/// The current task (`get_current()`, which is a function call in Rust). There always is one.
#[inline]
pub(super) fn current_task() -> *mut kernel::bindings::task_struct {
    let task: *mut kernel::bindings::task_struct;
    // SAFETY: Register 13 as in `irq_soft_mask`; on whatever CPU this task runs, its paca names it.
    unsafe {
        asm!(
            "ld {}, {}(13)",
            out(reg) task,
            const bindings::EBB_PMU_PACA_CURRENT,
            options(nostack, preserves_flags)
        )
    };
    task
}

/// Reads the machine state register.
#[inline]
pub(super) fn read_msr() -> u64 {
    let value: u64;
    // SAFETY: `mfmsr` has no effect but on its target.
    unsafe { asm!("mfmsr {}", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// Waits until earlier writes to SPRs have taken effect: a counter that they freeze has stopped,
/// and an alert that they enable has raised its interrupt.
#[inline]
pub(super) fn synchronize() {
    // SAFETY: Barriers only.
    unsafe { asm!("sync", "isync", options(nostack, preserves_flags)) };
}

/// Clears the BHRB.
#[inline]
pub(super) fn clear_bhrb() {
    // SAFETY: `clrbhrb`, encoded as the assembler may be set to an older ISA, changes the BHRB
    // only.
    unsafe { asm!(".long 0x7c00035c", options(nomem, nostack, preserves_flags)) };
}

/// Reads entries of the BHRB, the newest first, until one is 0 or there are no more. Returns how
/// many of `entries` it has written.
#[inline]
pub(super) fn read_bhrb(entries: &mut [MaybeUninit<u64>; BHRB_ENTRIES]) -> usize {
    let start = entries.as_mut_ptr();
    // `stdu` advances it before it stores.
    let mut last = start.wrapping_sub(1);
    // SAFETY: `mfbhrbe`, encoded as `clrbhrb` is, changes its target only, register 3. The entry's
    // number is part of the instruction, so there is one for each of the `BHRB_ENTRIES` that there
    // is room for.
    unsafe {
        asm!(
            ".irp entry, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,\
                16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
            ".long 0x7c00025c | 3 << 21 | \\entry << 11",
            "cmpldi 3, 0",
            "beq 2f",
            "stdu 3, 8({last})",
            ".endr",
            "2:",
            last = inout(reg_nonzero) last,
            out("r3") _,
            out("cr0") _,
            options(nostack),
        )
    };
    // CAST: Addresses, to count what is between them.
    (last.wrapping_add(1) as usize - start as usize) / size_of::<u64>()
}

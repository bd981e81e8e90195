// SPDX-License-Identifier: GPL-2.0

//! Access to special purpose registers by number, and to the kernel's data of this CPU, the paca.
//!
//! The functions are safe, except for those that write the paca. The kernel runs in privileged
//! state and the hypervisor has given it access to the PMU's registers (HFSCR), so reads and writes
//! of them cannot fault. A write may freeze counters or raise a PMI, but changes no memory.
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
    // SAFETY: `mfspr` of a PMU register changes only its target.
    unsafe { asm!("mfspr {}, {}", out(reg) value, const N, options(nostack, preserves_flags)) };
    value
}

/// Writes SPR `N`.
#[inline]
pub(super) fn write<const N: u32>(value: u64) {
    // SAFETY: `mtspr` of a PMU register changes nothing that Rust code uses. Without `nomem` the
    // compiler keeps its order relative to memory accesses.
    unsafe { asm!("mtspr {}, {}", const N, in(reg) value, options(nostack, preserves_flags)) };
}

/// Returns the mask of interrupts that are off for the kernel (`irq_soft_mask` of the paca).
#[inline]
pub(super) fn irq_soft_mask() -> u8 {
    let mask: u64;
    // SAFETY: Register 13 always has the address of the current CPU's paca.
    unsafe {
        asm!(
            "lbz {}, {}(13)",
            out(reg) mask,
            const bindings::EBB_PMU_PACA_IRQ_SOFT_MASK,
            options(nostack, preserves_flags)
        )
    };
    // CAST: `lbz` loads a byte.
    mask as u8
}

/// Sets the mask of interrupts.
///
/// # Safety
///
/// Interrupts must be off, both with the old mask and with the new one: interrupts that occurred
/// while masked are not replayed.
#[inline]
pub(super) unsafe fn set_irq_soft_mask(mask: u8) {
    // SAFETY: Register 13 always has the address of the current CPU's paca. The caller guarantees
    // that no interrupt has to be replayed. Without `nomem` the compiler keeps the order of memory
    // accesses.
    unsafe {
        asm!(
            "stb {}, {}(13)",
            in(reg) u64::from(mask),
            const bindings::EBB_PMU_PACA_IRQ_SOFT_MASK,
            options(nostack, preserves_flags)
        )
    };
}

/// Returns whether a PMI occurred while masked and is pending (`pmi_irq_pending()`).
#[inline]
pub(super) fn pmi_irq_pending() -> bool {
    let happened: u64;
    // SAFETY: Register 13 always has the address of the current CPU's paca.
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

/// Records that no PMI is pending (`clear_pmi_irq_pending()`).
///
/// # Safety
///
/// MSR\[EE\] must be off: the handler of a masked interrupt writes the same byte.
#[inline]
pub(super) unsafe fn clear_pmi_irq_pending() {
    // SAFETY: Register 13 always has the address of the current CPU's paca. The caller guarantees
    // that no other code writes the byte.
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

/// Returns `yield_count` of this CPU's lppaca; 0 if no hypervisor maintains one.
#[cfg(CONFIG_PPC_PSERIES)]
#[inline]
pub(super) fn yield_count() -> u32 {
    let lppaca: *const u8;
    // SAFETY: Register 13 always has the address of the current CPU's paca.
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
    // CAST: The constant is the offset of an aligned field, and fits any integer.
    let count = lppaca.wrapping_add(bindings::EBB_PMU_LPPACA_YIELD_COUNT as usize);
    // SAFETY: The lppaca of a CPU does not move. The hypervisor writes the word only while it has
    // taken the CPU away.
    u32::from_be(unsafe { count.cast::<u32>().read_volatile() })
}

/// Returns 0, because there is no hypervisor.
#[cfg(not(CONFIG_PPC_PSERIES))]
pub(super) fn yield_count() -> u32 {
    0
}

/// Returns the current task (`get_current()`, which is a function call in Rust). There always is
/// one.
#[inline]
pub(super) fn current_task() -> *mut kernel::bindings::task_struct {
    let task: *mut kernel::bindings::task_struct;
    // SAFETY: Register 13 always has the address of the current CPU's paca, which names this task
    // on any CPU that it runs on.
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
    // SAFETY: `mfmsr` changes only its target.
    unsafe { asm!("mfmsr {}", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// Waits until earlier writes to SPRs have taken effect: a counter that they freeze has stopped,
/// and an alert that they enable has raised its interrupt.
#[inline]
pub(super) fn synchronize() {
    // SAFETY: The instructions are only barriers.
    unsafe { asm!("sync", "isync", options(nostack, preserves_flags)) };
}

/// Clears the BHRB.
#[inline]
pub(super) fn clear_bhrb() {
    // SAFETY: `clrbhrb` changes only the BHRB. It is encoded as a number because the assembler may
    // be set to an older ISA.
    unsafe { asm!(".long 0x7c00035c", options(nomem, nostack, preserves_flags)) };
}

/// Reads entries of the BHRB, the newest first, until an entry is 0 or all are read. Returns the
/// number of `entries` that it wrote.
#[inline]
pub(super) fn read_bhrb(entries: &mut [MaybeUninit<u64>; BHRB_ENTRIES]) -> usize {
    let start = entries.as_mut_ptr();
    // `stdu` increments the address before it stores.
    let mut last = start.wrapping_sub(1);
    // SAFETY: `mfbhrbe`, encoded as a number like `clrbhrb`, changes only its target, register 3.
    // Each entry's number is part of its instruction, and there is one instruction for each of the
    // `BHRB_ENTRIES` elements.
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
    // CAST: Both are addresses, whose difference is the size of the entries.
    (last.wrapping_add(1) as usize - start as usize) / size_of::<u64>()
}

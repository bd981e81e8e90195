// SPDX-License-Identifier: GPL-2.0

//! What this machine is, what it runs under, and its clock.

use super::{
    bindings,
    spr, //
};
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// Number of the processor version register.
const PVR: u32 = 287;

/// Its upper half on POWER8E.
const PVR_POWER8E: u32 = 0x004b;

/// MSR\[HV\] (IBM bit 3): hypervisor state.
const MSR_HV: u64 = 1 << 60;

/// MSR\[EE\] (IBM bit 48): external interrupts enabled.
const MSR_EE: u64 = 1 << 15;

/// Start of the kernel's half of the effective address space.
pub(crate) const KERNEL_START: u64 = 0xc000_0000_0000_0000;

/// The processor version register: version in the upper, revision in the lower half.
pub(crate) fn pvr() -> u32 {
    // CAST: The register has 32 bits.
    spr::read::<PVR>() as u32
}

/// Whether interrupts come at once in the hardware's view, masked in software or not (MSR\[EE\]).
pub(crate) fn interrupts_come() -> bool {
    spr::read_msr() & MSR_EE != 0
}

/// Whether the kernel runs in hypervisor state, as on bare metal, rather than in a partition.
pub(crate) fn is_hypervisor() -> bool {
    spr::read_msr() & MSR_HV != 0
}

/// Whether the BHRB's instructions may be used. ISA 2.07 and later require them.
static BHRB: Atomic<bool> = Atomic::new(true);

/// Tells that the BHRB's instructions are illegal on this machine.
pub(crate) fn disable_bhrb() {
    BHRB.store(false, Relaxed);
}

/// Whether there is a BHRB.
#[inline]
pub(crate) fn has_bhrb() -> bool {
    BHRB.load(Relaxed)
}

/// Whether the CPU raises no alert when MMCR0 is written with PMAO set, as the architecture has it:
/// an erratum of POWER8E (`CPU_FTR_PMAO_BUG` in the kernel).
pub(crate) fn has_pmao_bug() -> bool {
    pvr() >> 16 == PVR_POWER8E
}

/// Whether an effective address is the kernel's.
#[inline]
pub(crate) fn is_kernel_address(address: u64) -> bool {
    address >= KERNEL_START
}

/// This CPU's scheduler clock in nanoseconds.
pub(crate) fn sched_clock() -> u64 {
    // SAFETY: Works in any context.
    unsafe { bindings::sched_clock() }
}

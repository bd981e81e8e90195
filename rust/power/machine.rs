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

const PVR: u32 = 287;

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

/// Whether the kernel itself runs in hypervisor state (bare metal).
pub(crate) fn kernel_is_hypervisor() -> bool {
    spr::read_msr() & MSR_HV != 0
}

/// Whether the kernel runs under a hypervisor, in a logical partition.
pub(crate) fn in_partition() -> bool {
    // SAFETY: Reads a constant of the running kernel.
    unsafe { bindings::ebb_pmu_in_lpar() }
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

/// Whether handlers of other interrupts are to let PMIs through, if the user says so: the module's
/// parameter `prompt`.
#[inline]
pub(crate) fn prompt() -> Option<bool> {
    // SAFETY: Reads a variable that is set before the module starts.
    let prompt = unsafe { bindings::ebb_pmu_prompt() };
    (prompt >= 0).then_some(prompt > 0)
}

/// Whether the CPU raises no alert when it finds MMCR0\[PMAO\] set, as it must: a defect of POWER8E
/// (`CPU_FTR_PMAO_BUG` of the kernel).
#[inline]
pub(crate) fn forgets_alerts() -> bool {
    // SAFETY: Reads what the kernel found out when it started.
    unsafe { bindings::ebb_pmu_alert_defect() }
}

/// Whether an effective address is the kernel's.
#[inline]
pub(crate) fn is_kernel_address(address: u64) -> bool {
    address >= KERNEL_START
}

/// Whether filters of branch stacks that hardware alone cannot apply are to be refused: the module's
/// parameter `strict_filters`.
pub(crate) fn strict_filters() -> bool {
    // SAFETY: Reads a variable that is set before the module starts.
    unsafe { bindings::ebb_pmu_strict_filters() }
}

/// The scheduler's clock of this CPU in nanoseconds.
pub(crate) fn clock() -> u64 {
    // SAFETY: Works in any context.
    unsafe { bindings::ebb_pmu_clock() }
}

/// Says, for whoever turned dynamic debug on, why an event was refused.
pub(crate) fn log_refusal(config: u64, errno: i32, reason: &str) {
    // SAFETY: The string is valid for the call, with its length.
    unsafe { bindings::ebb_pmu_refused(config, errno, reason.as_ptr(), reason.len()) };
}

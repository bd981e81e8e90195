// SPDX-License-Identifier: GPL-2.0

//! The values of the module's parameters, which do not change after the module is loaded.
//!
//! `parameters.c` declares them, `Documentation/sysfs.md` describes them.

use super::bindings;

/// Returns `strict_filters`: whether to refuse filters of branch stacks that the hardware alone
/// cannot apply.
pub(crate) fn strict_filters() -> bool {
    // SAFETY: The function reads a variable that the kernel sets before it starts the module.
    unsafe { bindings::ebb_pmu_strict_filters() }
}

/// Returns `prompt`: whether handlers of other interrupts let PMIs through; `None` if that depends
/// on the machine.
#[inline]
pub(crate) fn prompt() -> Option<bool> {
    // SAFETY: The function reads a variable that the kernel sets before it starts the module.
    let prompt = unsafe { bindings::ebb_pmu_prompt() };
    (prompt >= 0).then_some(prompt > 0)
}

/// Returns `dedicated_cpus`: whether the user guarantees that the hypervisor runs no other
/// partition on this partition's CPUs.
#[inline]
pub(crate) fn dedicated_cpus() -> bool {
    // SAFETY: The function reads a variable that the kernel sets before it starts the module.
    unsafe { bindings::ebb_pmu_dedicated_cpus() }
}

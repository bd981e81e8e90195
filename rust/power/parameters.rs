// SPDX-License-Identifier: GPL-2.0

//! The values of the module's parameters, which do not change once it is loaded.
//!
//! `parameters.c` declares them, `Documentation/sysfs.md` describes them.

use super::bindings;

/// `strict_filters`: whether to refuse filters of branch stacks that the hardware alone cannot apply.
pub(crate) fn strict_filters() -> bool {
    // SAFETY: Reads a variable that was set before the module started.
    unsafe { bindings::ebb_pmu_strict_filters() }
}

/// `prompt`: whether PM interrupts are to come in handlers of other interrupts, `None` if the
/// parameter leaves that to the driver.
#[inline]
pub(crate) fn prompt() -> Option<bool> {
    // SAFETY: As above.
    let prompt = unsafe { bindings::ebb_pmu_prompt() };
    (prompt >= 0).then_some(prompt > 0)
}

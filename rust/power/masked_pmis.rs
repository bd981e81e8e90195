// SPDX-License-Identifier: GPL-2.0

//! Masking PMIs, in code that has other interrupts off.

use super::{
    bindings,
    interrupt::IRQS_DISABLED,
    pmu::LocalPmu,
    spr, //
};
use kernel::pr_err_once;

impl LocalPmu<'_> {
    /// Calls `f` with PMIs masked, and then restores the mask. A PMI that becomes due in
    /// the meantime occurs when interrupts are on. Counters may be frozen until then, so `f` should
    /// be short.
    ///
    /// Other interrupts are off before and after the call, so there is nothing to replay and
    /// nothing to report to tracers: like the kernel's functions in that case, this only writes the
    /// mask.
    ///
    /// `f` may call this again: the calls end in the reverse order, so the mask is always right.
    /// Guards could be dropped in another order, which could leave PMIs masked.
    #[inline]
    pub(crate) fn with_pmis_masked<R>(&self, f: impl FnOnce() -> R) -> R {
        let before = spr::irq_soft_mask();
        if cfg!(CONFIG_DEBUG_IRQFLAGS) && u64::from(before) & IRQS_DISABLED == 0 {
            pr_err_once!("PM interrupts are masked while others are on\n");
        }
        // SAFETY: Interrupts are off while a `LocalPmu` lives; the new mask only adds PMIs.
        unsafe { spr::set_irq_soft_mask(before | bindings::EBB_PMU_IRQS_PMI_DISABLED) };
        let result = f();
        // SAFETY: `self` still lives, so interrupts were off with the mask `before`, and it turns
        // them off again.
        unsafe { spr::set_irq_soft_mask(before) };
        result
    }
}

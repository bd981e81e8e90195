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
    /// Calls `f` with PMIs masked, and sets the mask back to what it was. A PMI that is due in
    /// between comes when interrupts are on, and counters may stand still until then, so `f` should
    /// be short.
    ///
    /// As other interrupts are off, before and after, there is nothing to replay and nothing to
    /// report to tracers: like the kernel's functions in that case, this only writes the mask.
    ///
    /// `f` may call this again: the calls end in the reverse order, so the mask is always right.
    /// Guards could be dropped in another order, and leave PMIs masked.
    #[inline]
    pub(crate) fn with_pmis_masked<R>(&self, f: impl FnOnce() -> R) -> R {
        let before = spr::irq_soft_mask();
        if cfg!(CONFIG_DEBUG_IRQFLAGS) && u64::from(before) & IRQS_DISABLED == 0 {
            pr_err_once!("PM interrupts are masked while others are on\n");
        }
        // SAFETY: Interrupts are off while a `LocalPmu` lives, and the new mask keeps more of them
        // off.
        unsafe { spr::set_irq_soft_mask(before | bindings::EBB_PMU_IRQS_PMI_DISABLED) };
        let result = f();
        // SAFETY: `self` still lives, so interrupts were off with the mask `before`, and are off
        // with it again.
        unsafe { spr::set_irq_soft_mask(before) };
        result
    }
}

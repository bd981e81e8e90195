// SPDX-License-Identifier: GPL-2.0

//! Masking PMIs, in code that has other interrupts off.

use super::{
    bindings,
    interrupt::IRQS_DISABLED,
    pmu::LocalPmu,
    spr, //
};
use core::marker::PhantomData;
use kernel::pr_err_once;

/// Keeps PMIs masked while it lives. One that is due meanwhile comes when interrupts are on, and
/// counters may stand still until then, so that should be short.
///
/// As other interrupts are off, before and after, there is nothing to replay and nothing to tell
/// tracers: like the kernel's functions then, this only writes the mask.
///
/// # Invariants
///
/// With the mask `before` interrupts are off.
pub(crate) struct MaskedPmis<'a> {
    /// The mask as it was.
    before: u8,
    local: PhantomData<&'a LocalPmu<'a>>,
}

impl<'a> MaskedPmis<'a> {
    /// Masks PMIs.
    #[inline(always)]
    pub(crate) fn new(_local: &'a LocalPmu<'a>) -> Self {
        let before = spr::irq_soft_mask();
        if cfg!(CONFIG_DEBUG_IRQFLAGS) && u64::from(before) & IRQS_DISABLED == 0 {
            pr_err_once!("PM interrupts are masked while others are on\n");
        }
        // SAFETY: Interrupts are off while a `LocalPmu` lives, and more are with the new mask.
        unsafe { spr::set_irq_soft_mask(before | bindings::EBB_PMU_IRQS_PMI_DISABLED) };
        // INVARIANT: Likewise.
        Self {
            before,
            local: PhantomData,
        }
    }
}

impl Drop for MaskedPmis<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: Interrupts are off, as the `LocalPmu` that was borrowed still lives, and stay so
        // by the type invariants.
        unsafe { spr::set_irq_soft_mask(self.before) };
    }
}

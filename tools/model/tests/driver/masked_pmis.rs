// SPDX-License-Identifier: GPL-2.0

//! Nested sections with masked PM interrupts.

use crate::{
    machine::{Kind, MASK_PMI, MASK_STD, boot, irqs_off, with_cpu},
    power::pmu::LocalPmu,
};
use pmu_model::Processor;

fn mask() -> u8 {
    with_cpu(|cpu| cpu.mask)
}

#[test]
fn pm_interrupts_are_masked_until_the_outermost_section_ends() {
    boot(Kind::partition(Processor::Power9));
    irqs_off(|| {
        // SAFETY: Interrupts are off until the closure returns.
        let local = unsafe { LocalPmu::new() };
        local.with_pmis_masked(|| {
            assert_eq!(mask(), MASK_STD | MASK_PMI);
            let inner = local.with_pmis_masked(mask);
            assert_eq!(inner, MASK_STD | MASK_PMI);
            assert_eq!(mask(), MASK_STD | MASK_PMI, "the inner section has ended");
        });
        assert_eq!(mask(), MASK_STD, "both sections have ended");
    });
}

// SPDX-License-Identifier: GPL-2.0

//! The functions of `shim.c`, and of the kernel, for a CPU of the host.
//!
//! They are `unsafe` as bindgen would have them; none of them needs it to be.
#![allow(clippy::missing_safety_doc)]

use super::spr::with_cpu;
use pmu_model::Isa;

pub unsafe fn ebb_pmu_hard_irq_disable() {
    with_cpu(|cpu| cpu.facility.context.ee = false);
}

pub unsafe fn ebb_pmu_set_pmi_irq_pending() {
    with_cpu(|cpu| cpu.pmi_pending = true);
}

pub unsafe fn ebb_pmu_pmi_irq_pending() -> bool {
    with_cpu(|cpu| cpu.pmi_pending)
}

pub unsafe fn ebb_pmu_clear_pmi_irq_pending() {
    with_cpu(|cpu| cpu.pmi_pending = false);
}

pub unsafe fn set_prompt_pmi_wanted(_wanted: bool) {}

pub unsafe fn ebb_pmu_ppc_set_pmu_inuse(in_use: bool) {
    with_cpu(|cpu| cpu.lppaca.pmcregs_in_use = in_use);
}

pub unsafe fn ebb_pmu_yield_count() -> u32 {
    with_cpu(|cpu| cpu.lppaca.yield_count)
}

pub unsafe fn ebb_pmu_cpu_has_arch_300() -> bool {
    with_cpu(|cpu| cpu.facility.processor().isa() >= Isa::V300)
}

pub unsafe fn ebb_pmu_cpu_has_arch_31() -> bool {
    with_cpu(|cpu| cpu.facility.processor().isa() >= Isa::V31)
}

pub unsafe fn sched_clock() -> u64 {
    0
}

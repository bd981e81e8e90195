// SPDX-License-Identifier: GPL-2.0

//! The functions of `shim.c`, and of the kernel, for a CPU of the machine.
//!
//! They are `unsafe` as in bindgen's output, although few of them need that.
#![allow(clippy::missing_safety_doc, missing_docs)]

use crate::{
    history::program_code,
    machine::{Handler, KERNEL_TEXT, MASK_PMI, ensure, with_cpu, with_machine},
};
use kernel::{
    bindings::pt_regs,
    ffi::{c_char, c_int, c_long},
};
use pmu_model::Isa;

pub const EBB_PMU_IRQS_PMI_DISABLED: u8 = MASK_PMI;

pub unsafe fn ebb_pmu_hard_irq_disable() {
    with_cpu(|cpu| cpu.facility.context.ee = false);
}

pub unsafe fn ebb_pmu_set_pmi_irq_pending() {
    with_cpu(|cpu| cpu.pmi_pending = true);
}

pub unsafe fn ebb_pmu_get_irq_regs() -> *mut pt_regs {
    std::ptr::null_mut()
}

pub unsafe fn ebb_pmu_tracepoint_synchronize_unregister() {}

pub unsafe fn ebb_pmu_user_access_begin() {}

pub unsafe fn ebb_pmu_user_access_end() {}

/// Reads an instruction of the program. One of the kernel cannot be read, because it would cause a
/// page fault.
pub unsafe fn ebb_pmu_instruction(address: usize) -> c_long {
    if address as u64 >= KERNEL_TEXT {
        return -14;
    }
    program_code::branch_at(address as u64).1.into()
}

pub unsafe fn ebb_pmu_log_refusal(_config: u64, _error: c_int, _reason: *const u8, _length: usize) {
}

pub unsafe fn ebb_pmu_strict_filters() -> bool {
    false
}

pub unsafe fn ebb_pmu_dedicated_cpus() -> bool {
    with_cpu(|cpu| cpu.is_dedicated)
}

/// Returns `prompt=0` on bare metal, and otherwise the default, which is 1 on hardware.
pub unsafe fn ebb_pmu_prompt() -> c_int {
    with_cpu(|cpu| {
        if cpu.facility.context.hypervisor {
            0
        } else {
            -1
        }
    })
}

pub unsafe fn set_prompt_pmi_wanted(wanted: bool) {
    with_cpu(|cpu| cpu.prompt_pmis = wanted);
}

pub unsafe fn set_pmcs_ext_regs(index: c_int, value: usize) {
    with_cpu(|cpu| cpu.ext_regs[index as usize] = value);
}

pub unsafe fn reserve_pmc_hardware(handler: Option<Handler>) -> c_int {
    with_machine(|machine| {
        if machine.perf_irq.is_some() {
            return -16;
        }
        machine.perf_irq = handler;
        0
    })
}

pub unsafe fn release_pmc_hardware() {
    with_machine(|machine| machine.perf_irq = None);
}

/// Returns that there is no such function, because only an emulator needs one.
pub unsafe fn ebb_pmu_find_function(_name: *const c_char, _near: usize) -> usize {
    0
}

pub unsafe fn ebb_pmu_replace_handler(handler: Option<Handler>) -> c_int {
    with_machine(|machine| machine.perf_irq = handler);
    0
}

pub unsafe fn ebb_pmu_ppc_set_pmu_inuse(in_use: bool) {
    with_cpu(|cpu| cpu.lppaca.pmcregs_in_use = in_use);
}

pub unsafe fn ebb_pmu_cpu_has_arch_300() -> bool {
    with_machine(|machine| machine.kind.kernels_isa() >= Isa::V300)
}

pub unsafe fn ebb_pmu_cpu_has_arch_31() -> bool {
    with_machine(|machine| machine.kind.kernels_isa() >= Isa::V31)
}

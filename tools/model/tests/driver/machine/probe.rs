// SPDX-License-Identifier: GPL-2.0

//! Probes. The kernel single-steps a copy of the instruction that a probe has replaced, with
//! MSR\[SE\]. The trace interrupt leaves the copy's address in SIAR and the address of its data in
//! SDAR.
//!
//! \[kernel\] `arch/powerpc/kernel/kprobes.c`, `prepare_singlestep()` in `asm/probes.h`.

use super::Machine;
use crate::perf_core::PerfCore;
use std::cell::RefCell;

/// Start of the copies, which all have different addresses, and of their data.
const COPIES: u64 = 0xc008_0000_0001_0000;
const DATA: u64 = 0xc008_0000_0010_0000;
const NUMBER_SHIFT: u32 = 28;

thread_local! {
    /// The current task at the time of each probe that the kernel stepped over.
    static PROBED: RefCell<Vec<Option<usize>>> = const { RefCell::new(Vec::new()) };
}

/// Forgets all probes, as the machine boots.
pub(super) fn forget() {
    PROBED.take();
}

/// A copy of an instruction that a probe has replaced.
pub(super) struct Copy {
    pub address: u64,
    pub data: u64,
}

/// Returns the copy of the kernel's next instruction on this CPU, if that has a probe. The handler
/// of PM interrupts has no probes: see Limitations in `Documentation/internals.md`.
pub(super) fn next_probe(machine: &mut Machine) -> Option<Copy> {
    let cpu = &mut machine.cpus[machine.current];
    let in_hypervisor = cpu.facility.context.hypervisor != machine.kind.hypervisor;
    if cpu.handles_pmi || in_hypervisor {
        return None;
    }
    let left = cpu.probed_in.as_mut()?;
    if let Some(less) = left.checked_sub(1) {
        *left = less;
        return None;
    }
    cpu.probed_in = None;
    let offset = cpu.kernel_nip & super::KERNEL_TEXT_MASK;
    let task = PerfCore::get().running[machine.current].get();
    let number = PROBED.with_borrow_mut(|probed| {
        probed.push(task);
        (probed.len() as u64 - 1) << NUMBER_SHIFT
    });
    Some(Copy {
        address: COPIES | number | offset,
        data: DATA | number,
    })
}

/// Returns whether the kernel has stepped over a probe while `task` was the current task, and the
/// address is that of the copy or of its data.
pub fn was_probed(address: u64, task: usize) -> bool {
    if address & COPIES != COPIES && address & DATA != DATA {
        return false;
    }
    let number = (address >> NUMBER_SHIFT & 0xffff) as usize;
    PROBED.with_borrow(|probed| probed.get(number) == Some(&Some(task)))
}

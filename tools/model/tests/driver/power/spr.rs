// SPDX-License-Identifier: GPL-2.0

//! The instructions that `rust/power` executes, on the model. The facility counts each as a kernel
//! instruction, so alerts may occur between any two of them.

use crate::machine::{MASK_STD, ensure, execute, execute_on, note_access, with_cpu, with_machine};
use kernel::bindings::task_struct;
use pmu_model::{Context, Facility, spr};
use std::mem::MaybeUninit;

/// The processor version register.
const PVR: u32 = 287;

/// The time base.
const TB: u32 = 268;

/// Number of entries of the BHRB.
pub const BHRB_ENTRIES: usize = pmu_model::BHRB_ENTRIES;

/// Checks that the processor has a register. A missing register reads as 0 and ignores writes,
/// which would hide that the driver wrongly assumes it.
fn check<const N: u32>() {
    let is_there = N == PVR || with_cpu(|cpu| cpu.facility.has_spr(N));
    ensure(is_there, || format!("there is no SPR {N}"));
    let is_usable = matches!(N, PVR | spr::BESCRS..=spr::BESCR) || with_cpu(|cpu| cpu.pmcs_enabled);
    ensure(is_usable, || {
        format!("SPR {N} is used before the hypervisor has made the PMU usable")
    });
}

/// Returns whether the hypervisor denies the partition this register.
fn is_denied<const N: u32>() -> bool {
    !matches!(N, PVR | spr::BESCRS..=spr::BESCR) && with_cpu(|cpu| cpu.is_denied)
}

pub fn read<const N: u32>() -> u64 {
    if N == TB {
        return with_machine(|machine| machine.time_base);
    }
    if is_denied::<N>() {
        return 0;
    }
    check::<N>();
    let value = execute(|facility| match N {
        PVR => facility.processor().pvr().into(),
        _ => facility.mfspr(N),
    });
    if N != PVR {
        note_access(false, false, N, value);
    }
    value
}

pub fn write<const N: u32>(value: u64) {
    if is_denied::<N>() {
        return;
    }
    check::<N>();
    note_access(false, true, N, value);
    execute_on(|cpu| {
        cpu.facility.mtspr_delayed(N, value);
        if N == spr::SIAR {
            cpu.siar_is_written(value);
        }
    });
}

pub fn irq_soft_mask() -> u8 {
    with_cpu(|cpu| cpu.mask)
}

/// # Safety
///
/// No requirement for memory safety. Interrupts must be off before and after the call, because it
/// replays none.
pub unsafe fn set_irq_soft_mask(mask: u8) {
    with_cpu(|cpu| {
        let are_off = cpu.mask & mask & MASK_STD != 0;
        ensure(are_off, || "interrupts are on".into());
        cpu.mask = mask;
    });
}

pub fn pmi_irq_pending() -> bool {
    with_cpu(|cpu| cpu.pmi_pending)
}

/// # Safety
///
/// No requirement for memory safety. Interrupts must be off.
pub unsafe fn clear_pmi_irq_pending() {
    with_cpu(|cpu| {
        ensure(!cpu.facility.context.ee, || "an interrupt may come".into());
        cpu.pmi_pending = false;
    });
}

pub fn yield_count() -> u32 {
    with_cpu(|cpu| cpu.lppaca.yield_count)
}

pub fn current_task() -> *mut task_struct {
    kernel::bindings::get_current()
}

pub fn read_msr() -> u64 {
    let Context { hypervisor, ee, .. } = with_cpu(|cpu| cpu.facility.context);
    u64::from(hypervisor) << 60 | u64::from(ee) << 15
}

pub fn synchronize() {
    execute(Facility::synchronize);
}

pub fn clear_bhrb() {
    execute(Facility::clrbhrb);
}

pub fn read_bhrb(entries: &mut [MaybeUninit<u64>; BHRB_ENTRIES]) -> usize {
    let recorded = (0..BHRB_ENTRIES).map(|entry| execute(|facility| facility.mfbhrbe(entry)));
    let recorded = recorded.take_while(|entry| *entry != 0);
    let copied = entries.iter_mut().zip(recorded);
    copied.map(|(to, entry)| to.write(entry)).count()
}

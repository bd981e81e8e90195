// SPDX-License-Identifier: GPL-2.0

//! The instructions that `rust/power` is made of, executed by the model. Each is an instruction of
//! the kernel that the facility counts, so alerts occur between any two of them.

use pmu_model::{Context, Facility, Instruction, Lppaca, Processor};
use std::{cell::RefCell, mem::MaybeUninit};

/// The processor version register.
const PVR: u32 = 287;
/// Where the kernel's code is.
const KERNEL_TEXT: u64 = 0xc000_0000_0001_0000;

/// Number of entries of the BHRB.
pub const BHRB_ENTRIES: usize = pmu_model::BHRB_ENTRIES;

/// A CPU of the host.
pub struct Cpu {
    pub facility: Facility,
    pub lppaca: Lppaca,
    /// The bit of the paca.
    pub pmi_pending: bool,
}

/// Cycles that an instruction of the kernel takes. `restore_pmao`, as the kernel's workaround for
/// POWER8E, is right only if it is more than one: PMC6 has to overflow before the next write.
const CYCLES: u32 = 2;

thread_local! {
    static CPU: RefCell<Option<Cpu>> = const { RefCell::new(None) };
}

/// Makes this thread a CPU.
pub fn boot(processor: Processor) {
    let cpu = Cpu {
        facility: Facility::new(processor),
        lppaca: Lppaca::default(),
        pmi_pending: false,
    };
    CPU.set(Some(cpu));
}

/// Calls `f` with the CPU.
pub fn with_cpu<R>(f: impl FnOnce(&mut Cpu) -> R) -> R {
    CPU.with_borrow_mut(|cpu| f(cpu.as_mut().expect("a CPU that has booted")))
}

/// Executes an instruction of the kernel, and what it does.
fn execute<R>(effect: impl FnOnce(&mut Facility) -> R) -> R {
    with_cpu(|cpu| {
        assert!(!cpu.facility.context.problem, "the kernel runs");
        let instruction = Instruction {
            cycles: CYCLES,
            ..Instruction::at(KERNEL_TEXT)
        };
        cpu.facility.execute(&instruction);
        effect(&mut cpu.facility)
    })
}

pub fn read<const N: u32>() -> u64 {
    execute(|facility| match N {
        PVR => facility.processor().pvr().into(),
        _ => facility.mfspr(N),
    })
}

pub fn write<const N: u32>(value: u64) {
    execute(|facility| facility.mtspr(N, value));
}

pub fn read_msr() -> u64 {
    let Context { hypervisor, ee, .. } = with_cpu(|cpu| cpu.facility.context);
    u64::from(hypervisor) << 60 | u64::from(ee) << 15
}

pub fn synchronize() {
    execute(|_| ());
}

pub fn clear_bhrb() {
    execute(Facility::clrbhrb);
}

pub fn read_bhrb(entries: &mut [MaybeUninit<u64>; BHRB_ENTRIES]) -> usize {
    with_cpu(|cpu| {
        let held = (0..BHRB_ENTRIES).map(|entry| cpu.facility.mfbhrbe(entry));
        let held = held.take_while(|entry| *entry != 0);
        entries
            .iter_mut()
            .zip(held)
            .map(|(to, entry)| to.write(entry))
            .count()
    })
}

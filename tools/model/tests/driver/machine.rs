// SPDX-License-Identifier: GPL-2.0

//! The CPUs of a machine, one at a time, and the kernel's entry code for PM interrupts.
//!
//! The kernel has two masks in software. "Interrupts off" does not hold PM interrupts back: one
//! that comes then is an NMI. One that comes while PM interrupts are masked too turns MSR\[EE\] off
//! and stays pending, until interrupts are on altogether.

use crate::perf_core::PerfCore;
use kernel::{
    bindings::{pt_regs, task_struct},
    cpu::CPUS,
};
use pmu_model::{Executed, Facility, Instruction, Lppaca, Processor, mmcr0, spr};
use std::cell::RefCell;

/// A handler of PM interrupts.
pub type Handler = unsafe extern "C" fn(*mut pt_regs);

/// Interrupts are off.
pub const MASK_STD: u8 = 1;
/// PM interrupts are masked.
pub const MASK_PMI: u8 = 2;
/// Where the kernel's code is.
pub const KERNEL_TEXT: u64 = 0xc000_0000_0001_0000;
/// MSR\[PR\].
pub const MSR_PR: u64 = 1 << 14;

/// Where the kernel's data are.
pub const KERNEL_DATA: u64 = 0xc000_0000_0010_0000;

/// Cycles that an instruction of the kernel takes. `restore_pmao`, as the kernel's workaround for
/// POWER8E, is right only if it is more than one: PMC6 has to overflow before the next write.
const CYCLES: u32 = 2;

/// A CPU.
pub struct Cpu {
    pub facility: Facility,
    pub lppaca: Lppaca,
    /// Programs can write the registers that a hypervisor may have kept last.
    pub image_open: bool,
    /// The CPU was taken away since its registers were last in use or kept open.
    pub taken_away: bool,
    /// The bit of the paca.
    pub pmi_pending: bool,
    /// The mask in software.
    pub mask: u8,
    /// The PMU's registers were turned on since the CPU came up.
    pub pmcs_enabled: bool,
    /// Where the program goes on.
    pub nip: u64,
    /// The counters that samples show.
    pub ext_regs: [usize; 6],
    /// Handlers of other interrupts let PM interrupts through.
    pub prompt: bool,
}

impl Cpu {
    fn new(processor: Processor, hypervisor: bool) -> Self {
        let mut facility = Facility::new(processor);
        facility.context.hypervisor = hypervisor;
        Self {
            facility,
            lppaca: Lppaca::default(),
            image_open: false,
            taken_away: false,
            pmi_pending: false,
            mask: 0,
            pmcs_enabled: false,
            nip: 0,
            ext_regs: [0; 6],
            prompt: false,
        }
    }

    /// Whether a hypervisor would keep registers that programs can write.
    pub fn is_open(&self) -> bool {
        let open = mmcr0::pmcc(self.facility.mfspr(spr::MMCR0)) == 0b10;
        open && !self.facility.context.hypervisor
    }
}

/// An access to a register, or something else that a reader of the table wants to know.
#[derive(Clone, Debug)]
pub enum Entry {
    /// CPU, whether a program's, whether a write, the register's number, the value, MMCR0 then.
    Access(usize, bool, bool, u32, u64, u64),
    /// What else happens.
    Note(String),
}

/// What the facility tells of the instruction that it sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alert {
    pub siar: u64,
    pub sdar: u64,
    pub sier: u64,
}

/// The machine.
pub struct Machine {
    pub cpus: Vec<Cpu>,
    pub current: usize,
    processor: Processor,
    hypervisor: bool,
    /// Who handles PM interrupts.
    pub perf_irq: Option<Handler>,
    /// What the facility told when the last PM interrupt came.
    pub alert: Option<Alert>,
    /// The next PM interrupt whose exception the kernel ends at that moment comes nevertheless.
    is_late: bool,
    pub log: Option<Vec<Entry>>,
}

thread_local! {
    static MACHINE: RefCell<Option<Machine>> = const { RefCell::new(None) };
}

/// Boots a machine, in a partition or on bare metal.
pub fn boot_as(processor: Processor, hypervisor: bool) {
    let cpus = (0..CPUS).map(|_| Cpu::new(processor, hypervisor)).collect();
    MACHINE.set(Some(Machine {
        cpus,
        current: 0,
        processor,
        hypervisor,
        perf_irq: None,
        alert: None,
        is_late: false,
        log: None,
    }));
    kernel::cpu::set_current(0);
    kernel::bindings::set_switch(switch_to);
    kernel::bindings::set_enable_pmcs(|| with_cpu(|cpu| cpu.pmcs_enabled = true));
    kernel::interrupt::set_hook(|on| {
        if on {
            irq_restore(0)
        } else {
            irq_save(MASK_STD)
        }
    });
}

/// Boots a machine in a partition.
pub fn boot(processor: Processor) {
    boot_as(processor, false);
}

/// Calls `f` with the machine.
pub fn with_machine<R>(f: impl FnOnce(&mut Machine) -> R) -> R {
    MACHINE.with_borrow_mut(|machine| f(machine.as_mut().expect("a machine that has booted")))
}

/// Calls `f` with the CPU that runs.
pub fn with_cpu<R>(f: impl FnOnce(&mut Cpu) -> R) -> R {
    with_machine(|machine| f(&mut machine.cpus[machine.current]))
}

/// Runs on another CPU from now on.
pub fn switch_to(cpu: u32) {
    with_machine(|machine| machine.current = cpu as usize);
    kernel::cpu::set_current(cpu);
}

/// A CPU starts anew: nothing is left in its registers of what was there.
pub fn restart(cpu: usize) {
    with_machine(|machine| {
        let dispatched = machine.cpus[cpu].lppaca.yield_count.wrapping_add(2);
        machine.cpus[cpu] = Cpu::new(machine.processor, machine.hypervisor);
        // Off line it did not run.
        machine.cpus[cpu].lppaca.yield_count = dispatched;
    });
}

/// Ends the history after this step unless something is right, for what the driver calls.
pub fn ensure(is_right: bool, what: impl FnOnce() -> String) {
    if !is_right {
        kernel::complain(format_args!("{}", what()));
    }
}

/// Writes a line into the table of accesses, if there is one.
pub fn note(text: impl FnOnce() -> String) {
    with_machine(|machine| {
        if let Some(log) = &mut machine.log {
            log.push(Entry::Note(text()));
        }
    });
}

/// Executes an instruction of the kernel, and what it does.
///
/// A write of MMCR0 need not have taken effect before the next synchronizing instruction, so an
/// exception that occurs at it may be an interrupt or not: here each second one is.
pub fn execute<R>(effect: impl FnOnce(&mut Facility) -> R) -> R {
    let (counted, ran, was_due, result) = with_cpu(|cpu| {
        ensure(!cpu.facility.context.problem, || "the kernel runs".into());
        let instruction = Instruction {
            cycles: CYCLES,
            data: Some(KERNEL_DATA),
            ..Instruction::at(KERNEL_TEXT)
        };
        let before = counters(&cpu.facility);
        let ran = cpu.facility.mfspr(spr::MMCR0) & mmcr0::FC == 0;
        cpu.facility.execute(&instruction);
        let after = counters(&cpu.facility);
        let counted = core::array::from_fn(|pmc| after[pmc].wrapping_sub(before[pmc]));
        let was_due = cpu.facility.interrupt_is_due();
        (counted, ran, was_due, effect(&mut cpu.facility))
    });
    if ran {
        PerfCore::get().count_in_kernel(&counted);
    }
    let is_late = with_machine(|machine| {
        let ended = was_due && !machine.cpus[machine.current].facility.interrupt_is_due();
        machine.is_late ^= ended;
        ended && machine.is_late
    });
    take_interrupt_if(is_late);
    result
}

/// What the counters hold.
fn counters(facility: &Facility) -> [u32; 6] {
    core::array::from_fn(|pmc| facility.mfspr(spr::PMC1 + pmc as u32) as u32)
}

/// Executes an instruction of the program.
pub fn execute_in_program(instruction: &Instruction) -> Executed {
    let executed = with_cpu(|cpu| {
        assert!(cpu.facility.context.problem, "a program runs");
        let executed = cpu.facility.execute(instruction);
        cpu.nip = executed.next;
        executed
    });
    take_interrupt();
    executed
}

/// Takes the PM interrupt, if one is due.
pub fn take_interrupt() {
    take_interrupt_if(false);
}

/// Takes the PM interrupt, if one is due, or was a moment ago.
fn take_interrupt_if(is_late: bool) {
    let is_taken = with_machine(|machine| {
        let cpu = &mut machine.cpus[machine.current];
        let is_due = cpu.facility.interrupt_is_due() || is_late && cpu.facility.context.ee;
        if machine.perf_irq.is_none() || !is_due {
            return false;
        }
        cpu.facility.context.ee = false;
        if cpu.mask & MASK_PMI != 0 {
            cpu.pmi_pending = true;
        }
        !cpu.pmi_pending
    });
    if is_taken {
        handle();
        with_cpu(|cpu| cpu.facility.context.ee = true);
    }
}

/// Calls the handler of PM interrupts, with MSR\[EE\] off.
fn handle() {
    let (handler, mut regs, context, mask, nip) = with_machine(|machine| {
        let cpu = &mut machine.cpus[machine.current];
        machine.alert = Some(Alert {
            siar: cpu.facility.mfspr(spr::SIAR),
            sdar: cpu.facility.mfspr(spr::SDAR),
            sier: cpu.facility.mfspr(spr::SIER),
        });
        let context = cpu.facility.context;
        let mut regs = pt_regs::default();
        let named = &mut regs.__bindgen_anon_1.__bindgen_anon_1;
        named.nip = if context.problem {
            cpu.nip
        } else {
            KERNEL_TEXT
        } as usize;
        named.msr = if context.problem { MSR_PR as usize } else { 0 };
        named.softe = usize::from(cpu.mask & MASK_STD);
        cpu.facility.context.problem = false;
        cpu.facility.context.hypervisor = machine.hypervisor;
        let mask = std::mem::replace(&mut cpu.mask, MASK_STD | MASK_PMI);
        (machine.perf_irq, regs, context, mask, cpu.nip)
    });
    note(|| {
        format!(
            "PM interrupt at {:#x}",
            regs.__bindgen_anon_1.__bindgen_anon_1.nip
        )
    });
    let handler = handler.expect("a handler");
    let task = kernel::bindings::get_current();
    if context.problem {
        set_program_regs(task, &mut regs);
    }
    // SAFETY: The registers are those of the interrupt.
    unsafe { handler(&raw mut regs) };
    with_cpu(|cpu| {
        cpu.mask = mask;
        cpu.facility.context.hypervisor = context.hypervisor;
        if context.problem {
            cpu.nip = cpu.facility.enter_problem_state(nip);
            cpu.facility.context.ee = false;
        }
    });
    note(|| "end of the PM interrupt".into());
}

/// The task entered the kernel with these registers.
pub fn set_program_regs(task: *mut task_struct, regs: &mut pt_regs) {
    // SAFETY: The current task is there.
    unsafe { (*task).thread.regs = regs };
}

/// Masks interrupts.
pub fn irq_save(mask: u8) {
    with_cpu(|cpu| cpu.mask |= mask);
}

/// Takes the mask back to what it was. When interrupts are on altogether, those that came come.
pub fn irq_restore(mask: u8) {
    with_cpu(|cpu| cpu.mask = mask);
    if mask != 0 {
        return;
    }
    if with_cpu(|cpu| std::mem::take(&mut cpu.pmi_pending)) {
        with_cpu(|cpu| cpu.facility.context.ee = false);
        note(|| "the PM interrupt is replayed".into());
        handle();
    }
    with_cpu(|cpu| cpu.facility.context.ee = true);
    take_interrupt();
}

/// Calls `f` with interrupts off.
pub fn irqs_off<R>(f: impl FnOnce() -> R) -> R {
    let before = with_cpu(|cpu| cpu.mask);
    irq_save(MASK_STD);
    let result = f();
    irq_restore(before);
    result
}

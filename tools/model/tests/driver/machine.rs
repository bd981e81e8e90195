// SPDX-License-Identifier: GPL-2.0

//! The CPUs of a machine, which run one at a time, and the kernel's entry code for PM interrupts.
//!
//! The kernel has two interrupt masks in software. "Interrupts off" does not hold PM interrupts
//! back: a PM interrupt that comes then is an NMI. If PM interrupts are masked too, one that comes
//! turns MSR\[EE\] off and is pending until both masks are off.

mod cpu;
mod irqs;
mod kind;
mod probe;
mod table;

pub use cpu::{Cpu, Sampled};
pub use irqs::{interrupt, irq_restore, irq_save, irqs_off};
pub use kind::Kind;
pub use probe::was_probed;
pub use table::{Entry, note, note_access};

use crate::perf_core::PerfCore;
use kernel::{
    bindings::{pt_regs, task_struct},
    cpu::CPUS,
};
use pmu_model::{Executed, Facility, Idle, Instruction, Trace, mmcr0, mmcr2, mmcra, spr};
use std::cell::RefCell;

/// A handler of PM interrupts.
pub type Handler = unsafe extern "C" fn(*mut pt_regs);

/// Software mask of interrupts.
pub const MASK_STD: u8 = 1;
/// Software mask of PM interrupts.
pub const MASK_PMI: u8 = 2;
/// Start of the kernel's code, in which its address wraps around.
pub const KERNEL_TEXT: u64 = 0xc000_0000_0001_0000;
const KERNEL_TEXT_MASK: u64 = 0xfff;
/// MSR\[PR\].
pub const MSR_PR: u64 = 1 << 14;

/// Address of the kernel's data.
pub const KERNEL_DATA: u64 = 0xc000_0000_0010_0000;

/// Cycles of a kernel instruction. `restore_pmao`, like the kernel's workaround for POWER8E, works
/// only with more than one, because PMC6 has to overflow before the next write.
const CYCLES: u32 = 2;

/// Ticks of the time base in a second.
pub const TIME_BASE_HZ: u64 = 512_000_000;

/// A PM interrupt: its place, and the state of the facility.
#[derive(Clone, Copy, Debug)]
pub struct Alert {
    pub siar: u64,
    pub sdar: u64,
    pub sier: u64,
    /// Values of PMC1 to PMC6 at the interrupt, or later when the handler froze them.
    pub counters: [u32; 6],
    /// The instruction in SIAR; `None` if the kernel has written SIAR since.
    pub sampled: Option<Sampled>,
    /// The alert occurred when the kernel had already entered the interrupt.
    pub is_late: bool,
    /// SIAR still has the value of the alert.
    pub is_siar_known: bool,
    /// SDAR still has the value of the alert.
    pub is_sdar_known: bool,
    /// SIER still has the value of the alert.
    pub is_sier_known: bool,
    /// The PMU marks instructions, which begins a moment after counting.
    pub is_marking: bool,
    /// The interrupt came in the program.
    pub in_program: bool,
    /// The address of the next instruction at the place of the interrupt.
    pub nip: u64,
    /// The address where the program of this CPU continues, if there is one.
    pub program: Option<u64>,
}

/// The machine.
pub struct Machine {
    pub cpus: Vec<Cpu>,
    pub current: usize,
    pub kind: Kind,
    /// The handler of PM interrupts.
    pub perf_irq: Option<Handler>,
    /// The state of the facility at the last PM interrupt.
    pub alert: Option<Alert>,
    /// The time base. It advances only between steps and while a sample is written.
    pub time_base: u64,
    pub log: Option<Vec<Entry>>,
}

thread_local! {
    static MACHINE: RefCell<Option<Machine>> = const { RefCell::new(None) };
}

/// Boots a machine.
pub fn boot(kind: Kind) {
    let cpus = (0..CPUS).map(|cpu| Cpu::new(kind, cpu.into())).collect();
    MACHINE.set(Some(Machine {
        cpus,
        current: 0,
        kind,
        perf_irq: None,
        alert: None,
        time_base: 1 << 39,
        log: None,
    }));
    probe::forget();
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

/// Calls `f` with the machine.
pub fn with_machine<R>(f: impl FnOnce(&mut Machine) -> R) -> R {
    MACHINE.with_borrow_mut(|machine| f(machine.as_mut().expect("a machine that has booted")))
}

/// Calls `f` with the current CPU.
pub fn with_cpu<R>(f: impl FnOnce(&mut Cpu) -> R) -> R {
    with_machine(|machine| f(&mut machine.cpus[machine.current]))
}

/// Switches to another CPU.
pub fn switch_to(cpu: u32) {
    with_machine(|machine| machine.current = cpu as usize);
    kernel::cpu::set_current(cpu);
}

/// Restarts a CPU that was offline. On bare metal it has only slept, as deeply as possible. In a
/// partition its registers lose their values, and may have those of another partition.
pub fn restart(cpu: usize) {
    with_machine(|machine| {
        // While it was offline it did not run.
        let yield_count = machine.cpus[cpu].lppaca.yield_count.wrapping_add(2);
        let number = u64::from(CPUS) * u64::from(yield_count) + cpu as u64;
        let mut new = Cpu::new(machine.kind, number);
        new.lppaca.yield_count = yield_count;
        if machine.kind.hypervisor {
            new.facility = machine.cpus[cpu].facility.clone();
            // The paca stays as it is.
            new.lppaca.pmcregs_in_use = machine.cpus[cpu].lppaca.pmcregs_in_use;
            new.facility.sleep(Idle::Offline);
            new.forget_alerts();
        } else {
            machine.kind.let_others_run(&mut new, number);
        }
        machine.cpus[cpu] = new;
    });
}

/// Records an error unless a condition holds, which ends the history after this step. For functions
/// that the driver calls.
pub fn ensure(is_right: bool, what: impl FnOnce() -> String) {
    if !is_right {
        kernel::complain(format_args!("{}", what()));
    }
}

/// Executes an instruction of the kernel with its effect on the facility.
pub fn execute<R>(effect: impl FnOnce(&mut Facility) -> R) -> R {
    execute_on(|cpu| effect(&mut cpu.facility))
}

/// Executes an instruction of the kernel with its effect on the CPU.
pub fn execute_on<R>(effect: impl FnOnce(&mut Cpu) -> R) -> R {
    let probe = with_machine(probe::next_probe);
    let (counted, ran, context, instruction, result) = with_cpu(|cpu| {
        ensure(!cpu.facility.context.problem, || "the kernel runs".into());
        let (address, data) = match &probe {
            Some(copy) => (copy.address, copy.data),
            None => (cpu.kernel_nip, KERNEL_DATA),
        };
        let instruction = Instruction {
            cycles: CYCLES,
            data: Some(data),
            marked: cpu.marks(address),
            ..Instruction::at(address)
        };
        cpu.kernel_nip = KERNEL_TEXT | (cpu.kernel_nip + 4) & KERNEL_TEXT_MASK;
        let before = counters(&cpu.facility);
        // With FC1-4 set, `restore_pmao` lets PMC6 overflow, whichever event it has. MMCR2 freezes
        // all counters when a program's events leave the PMU.
        let ran = cpu.facility.in_effect(spr::MMCR0) & (mmcr0::FC | mmcr0::FC14) == 0
            && cpu.facility.in_effect(spr::MMCR2) != mmcr2::FREEZE;
        let context = cpu.facility.context;
        if probe.is_some() {
            cpu.facility.context.trace = Trace::Steps;
        }
        cpu.execute(&instruction);
        cpu.facility.context.trace = Trace::Off;
        let after = counters(&cpu.facility);
        let counted = core::array::from_fn(|pmc| after[pmc].wrapping_sub(before[pmc]));
        let result = effect(cpu);
        cpu.pass_to_hypervisor();
        (counted, ran, context, instruction, result)
    });
    if probe.is_some() {
        note(|| format!("a probe is stepped at {:#x}", instruction.address));
    }
    if ran {
        update_alert();
        PerfCore::get().count_in_kernel(&counted, &instruction, context);
    }
    take_interrupt();
    result
}

/// Updates the alert of a PM interrupt that the kernel replays. The PMU runs until the handler
/// freezes it, so an alert may occur in the handler itself.
fn update_alert() {
    with_machine(|machine| {
        let cpu = &machine.cpus[machine.current];
        if let Some(alert) = &mut machine.alert {
            alert.counters = counters(&cpu.facility);
        }
        if let (Some(alert), Some(sampled)) = (&mut machine.alert, cpu.sampled) {
            let registers = [spr::SIAR, spr::SDAR, spr::SIER];
            [alert.siar, alert.sdar, alert.sier] =
                registers.map(|number| cpu.facility.mfspr(number));
            let [siar, sdar, sier] = registers.map(|number| cpu.facility.is_known(number));
            alert.is_late |= !alert.is_sier_known && sier;
            (alert.is_siar_known, alert.is_sdar_known) = (siar, sdar);
            alert.is_sier_known = sier;
            alert.sampled = Some(sampled);
        }
    });
}

/// Returns the values of the counters.
fn counters(facility: &Facility) -> [u32; 6] {
    core::array::from_fn(|pmc| facility.mfspr(spr::PMC1 + pmc as u32) as u32)
}

/// Executes an instruction of the program. The caller takes a PM interrupt that is due afterwards.
pub fn execute_in_program(instruction: &Instruction) -> Executed {
    with_cpu(|cpu| {
        assert!(cpu.facility.context.problem, "a program runs");
        let executed = cpu.execute(instruction);
        cpu.nip = executed.next;
        executed
    })
}

/// Takes the PM interrupt, if one is due.
pub fn take_interrupt() {
    let is_taken = with_machine(|machine| {
        let cpu = &mut machine.cpus[machine.current];
        if machine.perf_irq.is_none() || !cpu.facility.interrupt_is_due() {
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
    let program = PerfCore::get().program_nip();
    let (handler, mut regs, context, mask, nip) = with_machine(|machine| {
        let cpu = &mut machine.cpus[machine.current];
        cpu.facility.synchronize();
        cpu.notice_alert();
        // An interrupt turns the run latch on, except an NMI.
        cpu.facility.context.run |= cpu.mask & MASK_STD == 0;
        let context = cpu.facility.context;
        let program = if context.problem {
            Some(cpu.nip)
        } else {
            program
        };
        machine.alert = Some(Alert {
            siar: cpu.facility.mfspr(spr::SIAR),
            sdar: cpu.facility.mfspr(spr::SDAR),
            sier: cpu.facility.mfspr(spr::SIER),
            counters: counters(&cpu.facility),
            sampled: cpu.sampled,
            is_late: false,
            is_siar_known: cpu.facility.is_known(spr::SIAR),
            is_sdar_known: cpu.facility.is_known(spr::SDAR),
            is_sier_known: cpu.facility.is_known(spr::SIER),
            is_marking: cpu.facility.mfspr(spr::MMCRA) & mmcra::SAMPLE_ENABLE != 0,
            in_program: context.problem,
            nip: if context.problem {
                cpu.nip
            } else {
                cpu.kernel_nip
            },
            program,
        });
        let mut regs = pt_regs::default();
        let named = &mut regs.__bindgen_anon_1.__bindgen_anon_1;
        named.nip = if context.problem {
            cpu.nip
        } else {
            cpu.kernel_nip
        } as usize;
        named.msr = if context.problem { MSR_PR as usize } else { 0 };
        named.softe = usize::from(cpu.mask & MASK_STD);
        cpu.facility.context.problem = false;
        cpu.facility.context.hypervisor = machine.kind.hypervisor;
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
    check_cause();
    if context.problem {
        set_program_regs(task, &mut regs);
    }
    with_cpu(|cpu| cpu.handles_pmi = true);
    // SAFETY: The registers are those of the interrupt and live until the handler returns.
    unsafe { handler(&raw mut regs) };
    with_cpu(|cpu| {
        cpu.handles_pmi = false;
        cpu.facility.synchronize();
        cpu.mask = mask;
        cpu.facility.context.hypervisor = context.hypervisor;
        if context.problem {
            cpu.nip = cpu.facility.enter_problem_state(nip);
            cpu.facility.context.ee = false;
        }
    });
    note(|| "end of the PM interrupt".into());
}

/// Checks that a PM interrupt has a cause: of PMC1 to PMC4, only a counter with an event may be
/// negative. It makes no check where the driver makes none: on bare metal, where an idle state
/// leaves arbitrary values in counters, and for a PMU that is disabled or has EBB events.
fn check_cause() {
    let core = PerfCore::get();
    let negative = with_machine(|machine| {
        let facility = &machine.cpus[machine.current].facility;
        let is_ebb = facility.mfspr(spr::MMCR0) & mmcr0::EBE != 0;
        // The built-in driver programs the PMU at random.
        let is_known = !machine.kind.hypervisor && !is_ebb && !core.is_disabled();
        let is_known = is_known && !machine.kind.is_interposed;
        let programmable = (spr::PMC1..).take(4).filter(|_| is_known);
        let negative = programmable.filter(|number| facility.is_negative(*number));
        negative
            .map(|number| number - spr::PMC1 + 1)
            .collect::<Vec<_>>()
    });
    for number in negative {
        ensure(core.has_event(number as usize), || {
            format!("a PM interrupt for PMC{number}, which no event is on")
        });
    }
}

/// Sets the registers with which a task entered the kernel.
pub fn set_program_regs(task: *mut task_struct, regs: &mut pt_regs) {
    // SAFETY: The current task exists until it is switched out.
    unsafe { (*task).thread.regs = regs };
}

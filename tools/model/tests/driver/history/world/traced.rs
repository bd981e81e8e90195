// SPDX-License-Identifier: GPL-2.0

//! Debuggers that step programs, and probes that the kernel steps over: each trace interrupt writes
//! SIAR and SDAR, whether or not the program with the EBB group was traced.

use super::{super::program_code::branch_at, directed::run, *};
use std::cell::RefCell;

impl World {
    /// Steps the program of a CPU under a debugger, by instructions or by branches. Each trace
    /// interrupt enters the kernel, which executes some instructions.
    pub(super) fn trace(&mut self, cpu: usize, count: u8, branches: bool) {
        let trace = if branches {
            Trace::Branches
        } else {
            Trace::Steps
        };
        for number in 0..count {
            self.core.run_on(cpu);
            let Some(task) = self.core.running[cpu].get() else {
                return;
            };
            let has_group = self.sync_program(cpu, task);
            let address = with_cpu(|cpu| {
                cpu.facility.context.trace = trace;
                // A trace interrupt has priority over a PM interrupt.
                cpu.facility.context.ee = false;
                cpu.nip
            });
            let branch = (number % 2 == 1).then(|| branch_at(address).2);
            let data = self.core.task(task).data();
            let instruction = Instruction {
                branch,
                ..instruction_at(address, data)
            };
            if branch.is_some() {
                self.recorded[cpu].push(address);
            }
            let executed = self.execute(cpu, &instruction);
            with_cpu(|cpu| cpu.facility.context.trace = Trace::Off);
            if let Some(program) = self.programs.get_mut(&task).filter(|_| has_group) {
                program.set_trace(trace);
                let next = program.execute(&instruction);
                program.set_trace(Trace::Off);
                assert_eq!(executed.next, next, "where the program goes on");
                with_cpu(|cpu| program.check(&cpu.facility));
            }
            if executed.traced {
                self.core.enter_kernel(cpu);
                branches::branch_in_kernel();
            }
            self.let_interrupts_through(cpu);
            if executed.traced {
                self.core.leave_kernel(cpu);
                if let Some(program) = self.programs.get_mut(&task).filter(|_| has_group) {
                    program.enter();
                }
            }
            self.check_stacks();
        }
    }
}

/// Starts a program whose handler runs: PMC6 has raised its alert, and SIAR has the instruction
/// [`ALERT`].
const IN_HANDLER: [Op; 5] = [
    Op::Switch(0, 0),
    Op::OpenEbb(0, 3),
    Op::User(0, UserWrite::Bescr(0b11)),
    Op::User(0, UserWrite::Counter(5, 4)),
    Op::Run(0, 2, 3, 3),
];
const ALERT: u64 = 0x100c;

/// Runs [`IN_HANDLER`] and then a history. Returns the values that the program finds in SIAR on
/// each kind of machine.
fn siar_after(history: &[Op]) -> Vec<u64> {
    let found = RefCell::new(Vec::new());
    run(&[&IN_HANDLER, history].concat(), |_, facility| {
        assert_ne!(facility.mfspr(spr::MMCR0) & mmcr0::PMAO, 0, "no alert");
        found.borrow_mut().push(facility.mfspr(spr::SIAR));
    });
    let mut found = found.take();
    found.dedup();
    found
}

#[test]
fn a_handler_finds_its_instruction_after_another_program_was_stepped() {
    for branches in [false, true] {
        let history = [
            Op::Switch(0, 1),
            Op::Trace(0, 4, branches),
            Op::Switch(0, 0),
        ];
        assert_eq!(siar_after(&history), [ALERT]);
    }
}

#[test]
fn a_handler_finds_its_instruction_after_a_probe_of_another_task() {
    // The kernel steps over the probe while a task without events is current, or none.
    for task in [1, TASKS as u8] {
        let history = [
            Op::Switch(0, task),
            Op::ProbeIn(0, 1),
            Op::Kernel(0, 4, false),
            Op::Switch(0, 0),
        ];
        assert_eq!(siar_after(&history), [ALERT]);
    }
}

#[test]
fn an_alert_at_a_step_branches_as_the_kernel_returns() {
    let alert_at_a_step = [
        Op::User(0, UserWrite::Bescr(0b11)),
        Op::User(0, UserWrite::Counter(5, 4)),
        Op::Trace(0, 8, false),
    ];
    let history = [&IN_HANDLER[..2], &alert_at_a_step].concat();
    run(&history, |_, facility| {
        assert_eq!(facility.mfspr(spr::BESCR), bescr::PMEO, "no EBB");
    });
}

#[test]
fn a_handler_that_is_stepped_finds_its_own_instruction() {
    let found = siar_after(&[Op::Trace(0, 1, false)]);
    assert_eq!(found, [HANDLER]);
    // SIAR keeps the instruction that was traced.
    let found = siar_after(&[Op::Trace(0, 1, false), Op::Switch(0, 1), Op::Switch(0, 0)]);
    assert_eq!(found, [HANDLER]);
}

#[test]
fn a_handler_finds_a_probe_of_its_own_task() {
    // This is a limitation (`Documentation/internals.md`). The test shows that the model has it.
    let found = siar_after(&[Op::ProbeIn(0, 1), Op::Kernel(0, 4, false)]);
    assert!(found.iter().all(|siar| machine::was_probed(*siar, 0)));
}

// SPDX-License-Identifier: GPL-2.0

//! Checks of samples: the instructions of a program use up periods, and no sample that is due is
//! lost. `history/oracle.rs` checks the contents of each sample as it is recorded.

use super::*;

impl World {
    /// Executes an instruction of a CPU's program. The caller takes a PM interrupt that is due
    /// afterwards.
    pub(super) fn execute(&mut self, cpu: usize, instruction: &Instruction) -> Executed {
        let events = self.active(cpu, false);
        let counting: Vec<_> = events.iter().filter(|event| event.counter_runs()).collect();
        let executed = execute_in_program(instruction);
        for event in counting {
            self.oracle.executed(event, instruction);
        }
        let task = self.core.running[cpu].get();
        if let Some(program) = task.and_then(|task| self.programs.get_mut(&task)) {
            program.nip = executed.next;
        }
        executed
    }

    /// Executes an instruction of the program that takes so long that counters may overflow, while
    /// a different interrupt is due: a PM interrupt has to wait. Returns whether there is such a
    /// program.
    pub(super) fn overflow_unseen(&mut self, cpu: usize) -> bool {
        self.core.run_on(cpu);
        let Some(task) = self.core.running[cpu].get() else {
            return false;
        };
        if self.sync_program(cpu, task) {
            return false;
        }
        let address = with_cpu(|cpu| {
            cpu.facility.context.ee = false;
            cpu.nip
        });
        let instruction = Instruction {
            cycles: 9,
            ..instruction_at(address, self.core.task(task).data())
        };
        self.execute(cpu, &instruction);
        true
    }

    /// Allows PM interrupts again.
    pub(super) fn let_interrupts_through(&self, cpu: usize) {
        self.core.run_on(cpu);
        with_cpu(|cpu| cpu.facility.context.ee = true);
        machine::take_interrupt();
    }

    /// Checks the counter of an event that samples. Its sample may be due only while the counter is
    /// stopped, or is one event away from negative, or while its alert is late. Otherwise the
    /// counter must match the remainder of the period.
    pub(super) fn check_period(event: &Event) {
        let Some(pmc) = Self::counter(event).filter(|_| event.sample_period() > 0) else {
            return;
        };
        let cpu = event.oncpu.get();
        let alert_is_late = cpu.is_some_and(|cpu| {
            with_machine(|machine| machine.cpus[cpu].facility.has_delayed_alert())
        });
        if alert_is_late {
            return;
        }
        let (left, id) = (event.left(), event.id);
        assert_eq!(
            NEGATIVE as i64 - i64::from(pmc),
            left.max(1),
            "event {id}: its counter, with {left} left of the period"
        );
    }
}

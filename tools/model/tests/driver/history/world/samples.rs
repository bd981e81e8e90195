// SPDX-License-Identifier: GPL-2.0

//! Samples: what a program executes uses their periods up, and none that is due is forgotten.
//! What each shows is checked as it is recorded (`history/oracle.rs`).

use super::*;

impl World {
    /// The program of a CPU executes an instruction. A PM interrupt that
    /// is due then is the caller's to take.
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

    /// The program's next instruction takes so long that counters may overflow, but something else
    /// interrupts it: a PM interrupt has to wait. Returns whether there is such a program.
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

    /// PM interrupts come again.
    pub(super) fn let_interrupts_through(&self, cpu: usize) {
        self.core.run_on(cpu);
        with_cpu(|cpu| cpu.facility.context.ee = true);
        machine::take_interrupt();
    }

    /// An event's sample is due only while its counter stands still, or has one event to go until
    /// it is negative, or while its alert is late. Else as many are left as the period has left.
    pub(super) fn check_period(event: &Event) {
        let Some(pmc) = Self::counter(event).filter(|_| event.sample_period() > 0) else {
            return;
        };
        let cpu = event.oncpu.get();
        let alert_is_late = cpu
            .is_some_and(|cpu| with_machine(|machine| machine.cpus[cpu].facility.has_late_alert()));
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

// SPDX-License-Identifier: GPL-2.0

//! Trace interrupts: a debugger or a probe stops the thread after each instruction, or after each
//! branch. They share SIAR and SDAR with the performance monitor.

use crate::{
    Facility, Instruction,
    fields::{mmcr0, spr},
};

/// Instructions that MSR\[SE\] and MSR\[BE\] trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trace {
    /// No instruction.
    #[default]
    Off,
    /// Each instruction (MSR\[SE\]).
    Steps,
    /// Each branch (MSR\[BE\]).
    Branches,
}

impl Facility {
    /// Traces an instruction that has completed. Returns whether a trace interrupt occurs.
    /// The interrupt sets SIAR to the address of the instruction and SDAR to that of its data,
    /// although counters are frozen and alerts disabled. SDAR is undefined if there are no data.
    /// SIER does not change. With PMAE set the performance monitor may write both registers at any
    /// time, so they are undefined for a debugger. While an instruction is traced they are
    /// undefined for the performance monitor: here MSR\[BE\] changes them at some instructions that
    /// are no branches.
    ///
    /// \[microwatt\] `pmu_1` and `execute1.vhdl`; kvm-unit-tests, `powerpc/interrupts.c`, which
    /// expects the address in SIAR on POWER8 to POWER10, in privileged state too. For the undefined
    /// cases: \[memory\] Book III, "Trace Interrupt"; "Interaction with the Trace Facility".
    pub(crate) fn trace(&mut self, instruction: &Instruction) -> bool {
        let traced = match self.context.trace {
            Trace::Off => return false,
            Trace::Steps => true,
            Trace::Branches => instruction.branch.is_some(),
        };
        self.known.remove(spr::SIAR);
        self.known.remove(spr::SDAR);
        let may_change = self.mmcr0 & mmcr0::PMAE != 0 || !traced;
        if may_change && self.random.one_in(2) {
            return traced;
        }
        self.siar = instruction.address;
        match instruction.data {
            Some(data) => self.sdar = data,
            None if self.random.one_in(2) => self.sdar = 0,
            None => {}
        }
        traced
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Context, Processor, bescr, mmcr0::*};

    const ADDRESS: u64 = 0x1000;
    const DATA: u64 = 0x8000;

    fn instruction() -> Instruction {
        Instruction {
            data: Some(DATA),
            ..Instruction::at(ADDRESS)
        }
    }

    /// A frozen facility with alerts off, whose SIAR, SDAR and SIER software has written.
    fn frozen(processor: Processor, trace: Trace) -> Facility {
        let mut facility = Facility::new(processor);
        for number in [spr::SIAR, spr::SDAR, spr::SIER] {
            facility.mtspr(number, number.into());
        }
        facility.context.trace = trace;
        facility
    }

    #[test]
    fn a_step_sets_siar_and_sdar_of_a_frozen_facility_and_leaves_sier() {
        for processor in Processor::ALL {
            for context in [Context::PROGRAM, Context::KERNEL, Context::HYPERVISOR] {
                let mut facility = frozen(processor, Trace::Off);
                facility.context = context;
                assert!(!facility.execute(&instruction()).traced);
                assert_eq!(facility.mfspr(spr::SIAR), spr::SIAR.into());
                facility.context.trace = Trace::Steps;
                assert!(facility.execute(&instruction()).traced);
                assert_eq!(facility.mfspr(spr::SIAR), ADDRESS);
                assert_eq!(facility.mfspr(spr::SDAR), DATA);
                assert_eq!(facility.mfspr(spr::SIER), spr::SIER.into());
                let known = [spr::SIAR, spr::SDAR, spr::SIER];
                let known = known.map(|number| facility.is_known(number));
                assert_eq!(known, [false, false, true]);
            }
        }
    }

    #[test]
    fn a_trace_interrupt_comes_before_an_event_based_branch() {
        let mut facility = Facility::new(Processor::Power10);
        facility.mtspr(spr::BESCR, bescr::GE | bescr::PME);
        facility.mtspr(spr::EBBHR, 0x5000);
        facility.mtspr(spr::PMC6, 0x7fff_ffff);
        facility.mtspr(spr::MMCR0, PMAE | FCECE | PMCJCE | EBE | CC56RUN);
        facility.context = Context {
            trace: Trace::Steps,
            ..Context::PROGRAM
        };
        let executed = facility.execute(&instruction());
        assert!(executed.traced && !executed.ebb);
        assert_eq!(facility.mfspr(spr::SIAR), ADDRESS);
        facility.context = Context::KERNEL;
        assert_eq!(facility.enter_problem_state(executed.next), 0x5000);
        assert_eq!(facility.mfspr(spr::EBBRR), ADDRESS + 4);
    }
}

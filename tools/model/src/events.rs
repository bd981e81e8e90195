// SPDX-License-Identifier: GPL-2.0

//! The events that counters count.

use crate::{Facility, Fault, Instruction, Isa, fields::mmcra};

impl Facility {
    /// Returns a counter's PMCxSEL field: MMCR1 has eight bits for each of PMC1 to PMC4, from bit
    /// 32 on.
    pub(crate) fn pmc_select(&self, pmc: usize) -> u8 {
        (self.mmcr1 >> (24 - 8 * pmc)) as u8
    }

    /// Returns how often a counter's event occurs during an instruction.
    ///
    /// PMC5 counts instructions, PMC6 cycles. PMC1 to PMC4 count the event that PMCxSEL selects:
    ///
    /// | codes | event | source |
    /// |---|---|---|
    /// | 02 on any | instructions | \[kernel\] `power8-events-list.h`, `isa207-common.h` |
    /// | fe on PMC1, from v3.0 on | instructions | \[kernel\] `generic-compat-pmu.c`, "ISA v3.0+"; \[microwatt\] |
    /// | 1e on any, f0 on PMC1 | cycles | \[kernel\] likewise; \[microwatt\] |
    /// | f4 on PMC2 | run cycles | \[kernel\] `PM_RUN_CYC`; \[microwatt\] |
    /// | f4 on PMC4 | [`Instruction::others`] while the run latch is on: PURR, whose unit is no cycle | \[kernel\] `PM_RUN_PURR` in `power7-events-list.h` and in `pmu-events` of POWER8 and POWER9. \[microwatt\] has run cycles |
    /// | fa on PMC4 | run instructions | \[kernel\] `PM_RUN_INST_CMPL_ALT`; \[microwatt\] |
    /// | f4 on PMC3 | run instructions | \[microwatt\]. In \[kernel\] it is `PM_THRD_CONC_RUN_INST`: instructions while all threads of the core have their run latch on, which is the same on a core with one thread |
    /// | fa on PMC2 | branches taken | \[microwatt\]; \[kernel\] `PM_BR_TAKEN_CMPL` |
    /// | e0 on PMC1 and PMC4 | marked instructions | \[kernel\] `PM_MRK_INST_DISP`, `PM_MRK_INST_CMPL` |
    /// | 00 | nothing | \[microwatt\] |
    ///
    /// All other codes count [`Instruction::others`].
    pub(crate) fn occurrences(&self, pmc: usize, instruction: &Instruction) -> u32 {
        let run = u32::from(self.context.run);
        let is_marking = self.mmcra & mmcra::SAMPLE_ENABLE != 0;
        let has_v300_codes = self.processor.isa() >= Isa::V300;
        match (pmc, if pmc < 4 { self.pmc_select(pmc) } else { 0 }) {
            (4, _) => 1,
            (5, _) => instruction.cycles + u32::from(Fault::Cycles.is_on()),
            (_, 0) => 0,
            (_, 0x02) => 1,
            (0, 0xfe) if has_v300_codes => 1,
            (_, 0x1e) | (0, 0xf0) => instruction.cycles,
            (1, 0xf4) => instruction.cycles * run,
            (3, 0xf4) => instruction.others * run,
            (2, 0xf4) | (3, 0xfa) => run,
            (1, 0xfa) => u32::from(instruction.branch.is_some()),
            (0 | 3, 0xe0) => u32::from(is_marking && instruction.marked.is_some()),
            _ => instruction.others,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Branch, BranchForm, Context, Facility, Instruction, Processor, mmcr0, spr};

    /// Returns the counters' values after a branch instruction that takes three cycles.
    fn counted(processor: Processor, mmcr1: u64, context: Context) -> [u64; 6] {
        let mut facility = Facility::new(processor);
        facility.mtspr(spr::MMCR1, mmcr1);
        facility.mtspr(spr::MMCR0, mmcr0::CC56RUN);
        facility.context = context;
        let branch = Branch::taken(BranchForm::I, 0x2000);
        facility.execute(&Instruction {
            cycles: 3,
            branch: Some(branch),
            others: 7,
            ..Instruction::at(0x1000)
        });
        core::array::from_fn(|pmc| facility.mfspr(spr::PMC1 + pmc as u32))
    }

    #[test]
    fn run_events_stop_with_the_run_latch() {
        let waiting = Context {
            run: false,
            ..Context::KERNEL
        };
        let counted = |mmcr1| counted(Processor::Power8, mmcr1, waiting);
        assert_eq!(counted(0xf0f4_f4fa), [3, 0, 0, 0, 1, 3]);
        assert_eq!(counted(0x021e_0002), [1, 3, 0, 1, 1, 3]);
        assert_eq!(counted(0x0000_00f4), [0, 0, 0, 0, 1, 3]);
    }
}

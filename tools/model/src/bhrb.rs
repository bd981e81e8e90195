// SPDX-License-Identifier: GPL-2.0

//! The branch history rolling buffer: what each generation records and filters.

use crate::{
    Context, Facility, Instruction, Isa,
    fields::{mmcr0, mmcra},
};

/// Number of entries, the same on every processor.
///
/// \[kernel\] `bhrb_nr` of `power8-pmu.c` to `power10-pmu.c`.
pub const BHRB_ENTRIES: usize = 32;

/// Value that a read of an entry returns while the buffer records.
const UNDEFINED: u64 = 0x0bad_0bad_0bad_0bac;

/// BHRBE\[T\]: the entry is the target of a branch.
const TARGET: u64 = 1 << 1;
/// BHRBE\[P\]: the branch was mispredicted.
const PREDICTION: u64 = 1 << 0;

/// The form of a branch instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BranchForm {
    /// `b`, `bl`: always taken, target in the instruction.
    I,
    /// `bc`: target in the instruction.
    B,
    /// `bclr`, `bcctr`, `bctar`: target in a register.
    Xl,
}

/// A branch that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The form of the instruction.
    pub form: BranchForm,
    /// The target.
    pub target: u64,
    /// LK: it sets the link register.
    pub link: bool,
    /// BO: it is taken whatever the condition register and CTR hold.
    pub always: bool,
    /// The "a" bit of BO: software gave a hint of how likely it is taken.
    pub hinted: bool,
    /// The processor predicted it wrongly.
    pub mispredicted: bool,
}

impl Branch {
    /// Creates a branch that is always taken, sets no link register and was predicted correctly.
    pub fn taken(form: BranchForm, target: u64) -> Self {
        Self {
            form,
            target,
            link: false,
            always: true,
            hinted: false,
            mispredicted: false,
        }
    }

    fn is_conditional(&self) -> bool {
        self.form != BranchForm::I && !self.always
    }
}

/// The parts of a branch that are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recorded {
    Nothing,
    Target,
    All,
}

/// The buffer, newest entry first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bhrb([u64; BHRB_ENTRIES]);

impl Bhrb {
    pub(crate) fn push(&mut self, entry: u64) {
        self.0.rotate_right(1);
        self.0[0] = entry;
    }
}

impl Facility {
    /// Executes `clrbhrb` in privileged state.
    pub fn clrbhrb(&mut self) {
        self.bhrb = Bhrb::default();
    }

    /// Executes `mfbhrbe` in privileged state. Entry 0 is the newest; an empty entry reads as 0.
    /// While the buffer records, the result is undefined: here it is `UNDEFINED`.
    ///
    /// \[memory\] Book III, "Branch History Rolling Buffer"; \[kernel\] reads it only after an
    /// alert.
    pub fn mfbhrbe(&self, entry: usize) -> u64 {
        if self.is_recording() {
            UNDEFINED
        } else {
            self.recorded_branch(entry)
        }
    }

    /// Returns what `mfbhrbe` will read from an entry once the buffer has stopped recording.
    pub fn recorded_branch(&self, entry: usize) -> u64 {
        self.bhrb.0.get(entry).copied().unwrap_or(0)
    }

    /// Returns whether branches are recorded in at least one state of the thread.
    fn is_recording(&self) -> bool {
        let is_disabled = self.processor.isa() >= Isa::V31 && self.mmcra & mmcra::BHRBRD != 0;
        self.mmcr0 & mmcr0::PMAE != 0 && !is_disabled
    }

    /// Records the branch that an instruction takes.
    ///
    /// Each branch adds an entry with the instruction's address. An XL-form branch adds a second
    /// one with the target and T set, which is then the newest. \[kernel\] `power_pmu_bhrb_read()`.
    pub fn record_branch(&mut self, instruction: &Instruction) {
        let Some(branch) = instruction.branch else {
            return;
        };
        if !self.records_branches(self.context) {
            return;
        }
        let recorded = self.filter_branch(&branch);
        let prediction = if branch.mispredicted { PREDICTION } else { 0 };
        let indirect = branch.form == BranchForm::Xl;
        if recorded == Recorded::All {
            // If the target has an entry, the prediction bit is in that one.
            self.bhrb
                .push(instruction.address | if indirect { 0 } else { prediction });
        }
        if recorded != Recorded::Nothing && indirect {
            self.bhrb.push(branch.target & !3 | TARGET | prediction);
        }
    }

    /// Returns whether branches are recorded in a state.
    ///
    /// - PMAE: \[memory\] Book III, MMCR0\[PMAE\] ("BHRB entries are written"); \[QEMU\].
    /// - BHRBRD, on v3.1: \[kernel\] `MMCRA_BHRB_DISABLE`.
    /// - Only in problem state, on v3.1: \[kernel\] `power_pmu_bhrb_read()`, which drops kernel
    ///   addresses before v3.1 because the buffer contains them.
    /// - Not while FCS, FCP or FCH freezes the counters. FC does not freeze the BHRB: \[memory\]
    ///   Book
    ///   III, the names of these fields.
    fn records_branches(&self, context: Context) -> bool {
        let is_left_out = self.processor.isa() >= Isa::V31 && !context.problem;
        self.is_recording() && !self.is_frozen_in(context) && !is_left_out
    }

    /// Returns the parts of a branch that MMCRA\[IFM\] lets through.
    ///
    /// | IFM | before v3.1 | v3.1 |
    /// |---|---|---|
    /// | 0 | all | all |
    /// | 1 | LK=1 | LK=1 |
    /// | 2 | no I-form; if always taken: only the target, and only of XL-form | indirect |
    /// | 3 | as 2, and branches with a hint are treated like those always taken | conditional |
    ///
    /// \[AIX\]; for v3.1 \[kernel\] `power10_bhrb_filter_map()` and \[QEMU\]. It is not known
    /// whether IFM 2 includes calls on v3.1: see `isa207/branch/filter.rs`.
    fn filter_branch(&self, branch: &Branch) -> Recorded {
        let when = |wanted| {
            if wanted {
                Recorded::All
            } else {
                Recorded::Nothing
            }
        };
        let v31 = self.processor.isa() >= Isa::V31;
        match (mmcra::ifm(self.mmcra), v31) {
            (0, _) => Recorded::All,
            (1, _) => when(branch.link),
            (2, true) => when(branch.form == BranchForm::Xl),
            (_, true) => when(branch.is_conditional()),
            (ifm, false) => match branch.form {
                BranchForm::I => Recorded::Nothing,
                form if branch.always || (ifm == 3 && branch.hinted) => match form {
                    BranchForm::Xl => Recorded::Target,
                    _ => Recorded::Nothing,
                },
                _ => Recorded::All,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Processor, spr};

    const PMAE: u64 = mmcr0::PMAE;

    /// Returns the entries that a branch from 0x1000 to 0x2000 adds, the newest first.
    fn recorded(processor: Processor, ifm: u64, branch: Branch, context: Context) -> Vec<u64> {
        recorded_with(processor, PMAE, ifm << 30, branch, context)
    }

    fn recorded_with(
        processor: Processor,
        mmcr0: u64,
        mmcra: u64,
        branch: Branch,
        context: Context,
    ) -> Vec<u64> {
        let mut facility = Facility::new(processor);
        facility.mtspr(spr::MMCR0, mmcr0);
        facility.mtspr(spr::MMCRA, mmcra);
        facility.context = context;
        facility.execute(&Instruction {
            branch: Some(branch),
            ..Instruction::at(0x1000)
        });
        (0..BHRB_ENTRIES)
            .map(|entry| facility.recorded_branch(entry))
            .take_while(|e| *e != 0)
            .collect()
    }

    fn branch(form: BranchForm) -> Branch {
        Branch::taken(form, 0x2000)
    }

    #[test]
    fn an_indirect_branch_has_two_entries() {
        for processor in Processor::ALL {
            let of = |branch| recorded(processor, 0, branch, Context::PROGRAM);
            assert_eq!(of(branch(BranchForm::I)), [0x1000]);
            assert_eq!(of(branch(BranchForm::B)), [0x1000]);
            assert_eq!(of(branch(BranchForm::Xl)), [0x2002, 0x1000]);
            // A register may hold any target; its last two bits are ignored.
            assert_eq!(of(Branch::taken(BranchForm::Xl, 0x2003)), [0x2002, 0x1000]);
            let wrong = |form| Branch {
                mispredicted: true,
                ..branch(form)
            };
            assert_eq!(of(wrong(BranchForm::B)), [0x1001]);
            assert_eq!(of(wrong(BranchForm::Xl)), [0x2003, 0x1000]);
        }
    }

    #[test]
    fn filters_leave_of_each_branch_what_the_generation_says() {
        use BranchForm::*;
        let always = |form| branch(form);
        let call = |form| Branch {
            link: true,
            ..branch(form)
        };
        let cond = |form| Branch {
            always: false,
            ..branch(form)
        };
        let hinted = |form| Branch {
            hinted: true,
            ..cond(form)
        };
        // The number of entries that each filter lets through, before v3.1 and on v3.1.
        for (branch, before, v31) in [
            (always(I), [1, 0, 0, 0], [1, 0, 0, 0]),
            (call(I), [1, 1, 0, 0], [1, 1, 0, 0]),
            (always(B), [1, 0, 0, 0], [1, 0, 0, 0]),
            (cond(B), [1, 0, 1, 1], [1, 0, 0, 1]),
            (hinted(B), [1, 0, 1, 0], [1, 0, 0, 1]),
            (always(Xl), [2, 0, 1, 1], [2, 0, 2, 0]),
            (call(Xl), [2, 2, 1, 1], [2, 2, 2, 0]),
            (cond(Xl), [2, 0, 2, 2], [2, 0, 2, 2]),
            (hinted(Xl), [2, 0, 2, 1], [2, 0, 2, 2]),
        ] {
            for processor in Processor::ALL {
                let counts: [usize; 4] = core::array::from_fn(|ifm| {
                    recorded(processor, ifm as u64, branch, Context::PROGRAM).len()
                });
                let expected = if processor.isa() >= Isa::V31 {
                    v31
                } else {
                    before
                };
                assert_eq!(counts, expected, "{processor:?} {branch:?}");
            }
        }
    }

    #[test]
    fn the_oldest_entries_are_lost_and_clrbhrb_clears_all() {
        let mut facility = Facility::new(Processor::Power9);
        facility.mtspr(spr::MMCR0, PMAE);
        for number in 0..40 {
            let address = 0x1000 + 4 * number;
            let taken = Some(branch(BranchForm::I));
            facility.execute(&Instruction {
                branch: taken,
                ..Instruction::at(address)
            });
        }
        assert_eq!(facility.mfbhrbe(0), UNDEFINED);
        facility.mtspr(spr::MMCR0, 0);
        assert_eq!(facility.mfbhrbe(0), 0x1000 + 4 * 39);
        assert_eq!(facility.mfbhrbe(31), 0x1000 + 4 * 8);
        assert_eq!(facility.mfbhrbe(32), 0);
        facility.clrbhrb();
        assert!((0..BHRB_ENTRIES).all(|entry| facility.mfbhrbe(entry) == 0));
    }
}

// SPDX-License-Identifier: GPL-2.0

//! What a program with an EBB group should find in its registers: those of a facility of its own,
//! which executes the program's instructions and nothing else.
//!
//! The events of such a group exclude the kernel, so it makes no difference what the kernel does.

use crate::perf_core::Event;
use pmu_model::{BHRB_ENTRIES, Facility, Instruction, Isa, Processor, mmcr0, spr};
use std::rc::Rc;

/// The numbers in problem state.
const fn user(number: u32) -> u32 {
    number - spr::PROBLEM
}

/// The program of a task.
pub struct Program {
    own: Facility,
    /// The group's events, each with the number of its counter.
    counters: Vec<(usize, usize)>,
}

/// The counters of the active events of an EBB group.
fn counters(events: &[Rc<Event>]) -> Vec<(usize, usize)> {
    events.iter().map(|event| (event.id, event.idx())).collect()
}

impl Program {
    /// A program whose group came to a CPU anew: from now on it has what is in the registers there.
    /// Nothing of that may be anybody else's. `is_new` says that the group was on none before.
    pub fn new(facility: &Facility, events: &[Rc<Event>], is_new: bool) -> Self {
        let program = Self::resume(facility, events);
        for number in 0..6 {
            let used = program.has_counter(number);
            let value = facility.mfspr(spr::PMC1 + number as u32);
            assert!(
                used && !is_new || value == 0,
                "PMC{} is {value:#x}",
                number + 1
            );
        }
        assert_eq!(facility.mfbhrbe(0), 0, "a branch of somebody else");
        if is_new {
            Self::check_reset(facility);
        }
        program
    }

    /// A program that goes on with what is in the registers.
    pub fn resume(facility: &Facility, events: &[Rc<Event>]) -> Self {
        let mut own = facility.clone();
        (own.context.problem, own.context.ee) = (true, true);
        Self {
            own,
            counters: counters(events),
        }
    }

    /// Checks that the registers are those of a program that has written none.
    pub fn check_reset(facility: &Facility) {
        for (number, reset) in [
            (spr::SIAR, 0),
            (spr::SDAR, 0),
            (spr::SIER, 0),
            (spr::MMCR2, 0),
            (spr::MMCR0, mmcr0::PMAE),
        ] {
            let value = facility.problem_mfspr(user(number));
            assert_eq!(value, Ok(reset), "SPR {number} of a new program");
        }
    }

    /// Whether an event is on PMC`number + 1`.
    pub fn has_counter(&self, number: usize) -> bool {
        self.counters
            .iter()
            .any(|(_, counter)| *counter == number + 1)
    }

    /// Whether it is still the program of this group.
    pub fn has(&self, events: &[Rc<Event>]) -> bool {
        self.counters == counters(events)
    }

    /// Executes an instruction. Returns where the program goes on.
    pub fn execute(&mut self, instruction: &Instruction) -> u64 {
        self.own.execute(instruction).next
    }

    /// Does something to its facility.
    pub fn apply<R>(&mut self, f: impl FnOnce(&mut Facility) -> R) -> R {
        f(&mut self.own)
    }

    /// Whether a switch may change what the program finds: the limitations that
    /// `Documentation/internals.md` tells. POWER8E delays an alert that waits for BESCR. An alert
    /// that POWER8 missed, as the program enabled alerts with a counter negative, comes then.
    pub fn may_differ(&self) -> bool {
        let processor = self.own.processor();
        let mmcr0 = self.own.mfspr(spr::MMCR0);
        let negative = (spr::PMC1..=spr::PMC6).any(|number| self.own.is_negative(number));
        (processor == Processor::Power8E && mmcr0 & mmcr0::PMAO != 0)
            || (processor.isa() == Isa::V207 && mmcr0 & mmcr0::PMAE != 0 && negative)
    }

    /// Sets those counters without an event to 0 that a switch has set to 0.
    pub fn lose_counters(&mut self, facility: &Facility) {
        for number in 0..6 {
            if self.has_counter(number) {
                continue;
            }
            let number = user(spr::PMC1) + number as u32;
            let found = facility.problem_mfspr(number);
            let own = self.own.problem_mfspr(number);
            assert!(
                found == own || found == Ok(0),
                "SPR {number} is somebody else's: {found:x?}, its own {own:x?}"
            );
            if found != own {
                let lost = self.own.problem_mtspr(number, 0);
                assert_eq!(lost, Ok(()), "SPR {number} of a program with a group");
            }
        }
    }

    /// Compares what the program finds on the CPU.
    pub fn check(&self, facility: &Facility) {
        let mut numbers = vec![
            user(spr::MMCR0),
            user(spr::MMCR2),
            user(spr::MMCRA),
            user(spr::MMCR1),
            user(spr::SIAR),
            user(spr::SDAR),
            user(spr::SIER),
            spr::BESCR,
            spr::EBBHR,
            spr::EBBRR,
        ];
        if facility.processor().isa() >= Isa::V31 {
            numbers.extend([user(spr::SIER2), user(spr::SIER3), user(spr::MMCR3)]);
        }
        numbers.extend(user(spr::PMC1)..=user(spr::PMC6));
        for number in numbers {
            let (found, own) = (
                facility.problem_mfspr(number),
                self.own.problem_mfspr(number),
            );
            assert_eq!(found, own, "SPR {number} of the program, found and its own");
        }
        for entry in 0..BHRB_ENTRIES {
            let (found, own) = (facility.mfbhrbe(entry), self.own.mfbhrbe(entry));
            if found == 0 {
                break;
            }
            assert_eq!(found, own, "entry {entry} of the BHRB");
        }
    }
}

/// What a program without a group must not read.
pub fn check_closed(facility: &Facility) {
    let counters = spr::PMC1..=spr::PMC6;
    for number in counters.chain([spr::MMCR0, spr::MMCR2, spr::SIAR, spr::SDAR, spr::SIER]) {
        let found = facility.problem_mfspr(user(number));
        assert!(
            found.is_err(),
            "a program without EBBs reads SPR {number}: {found:x?}"
        );
    }
    assert!(facility.problem_mfbhrbe(0).is_err(), "it reads the BHRB");
    assert_eq!(
        facility.mfspr(spr::MMCR0) & mmcr0::EBE,
        0,
        "it may get an EBB"
    );
}

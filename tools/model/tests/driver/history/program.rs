// SPDX-License-Identifier: GPL-2.0

//! What a program with an EBB group should find in its registers: those of a facility of its own,
//! which executes the program's instructions and nothing else.
//!
//! If the group's events exclude the kernel, it makes no difference what the kernel does. The
//! counters of those that do not go on there, and may raise the alert.

use crate::perf_core::Event;
use pmu_model::{BHRB_ENTRIES, Facility, Instruction, Isa, Processor, bescr, mmcr0, spr};
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
    /// The counters, PMC1 first, whose events include the kernel.
    in_kernel: [bool; 6],
    /// POWER8E delays the alert that is in PMAO.
    is_delayed: bool,
}

/// Whether a group counts the kernel.
pub fn counts_kernel(events: &[Rc<Event>]) -> bool {
    events.iter().any(|event| !event.excludes_kernel())
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
            // PMC5 and PMC6 run beside each other.
            let goes_on = counts_kernel(events) && (used || number >= 4);
            assert!(
                used && !is_new || value == 0 || goes_on && value < 100,
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
            in_kernel: core::array::from_fn(|pmc| {
                let on = |event: &&Rc<Event>| event.idx() == pmc + 1;
                events
                    .iter()
                    .find(on)
                    .is_some_and(|event| !event.excludes_kernel())
            }),
            is_delayed: false,
        }
    }

    /// Checks that the registers are those of a program that has written none.
    pub fn check_reset(facility: &Facility) {
        let mut of_new = vec![
            (spr::SIAR, 0),
            (spr::SDAR, 0),
            (spr::SIER, 0),
            (spr::MMCR2, 0),
            (spr::MMCR0, mmcr0::PMAE),
        ];
        if facility.processor().isa() >= Isa::V31 {
            of_new.extend([(spr::SIER2, 0), (spr::SIER3, 0)]);
        }
        for (number, reset) in of_new {
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
        let before = self.own.mfspr(spr::MMCR0);
        let next = self.own.execute(instruction).next;
        let after = self.own.mfspr(spr::MMCR0);
        // `pmu-ebb.rst`: an alert freezes the counters.
        let alert = before & !after & mmcr0::PMAE != 0;
        assert!(!alert || after & mmcr0::FC != 0, "an alert does not freeze");
        next
    }

    /// Does something to its facility.
    pub fn apply<R>(&mut self, f: impl FnOnce(&mut Facility) -> R) -> R {
        f(&mut self.own)
    }

    /// Whether a switch may change what the program finds: the limitations that
    /// `Documentation/internals.md` tells. POWER8E delays an alert if the program is switched while
    /// it has BESCR\[GE\] off. An alert that POWER8 missed, as the program enabled alerts with a
    /// counter negative, comes then.
    pub fn may_differ(&mut self) -> bool {
        let processor = self.own.processor();
        let mmcr0 = self.own.mfspr(spr::MMCR0);
        let negative = (spr::PMC1..=spr::PMC6).any(|number| self.own.is_negative(number));
        let is_off = self.own.mfspr(spr::BESCR) & bescr::GE == 0;
        self.is_delayed = processor == Processor::Power8E
            && mmcr0 & mmcr0::PMAO != 0
            && (self.is_delayed || is_off);
        self.is_delayed || (processor.isa() == Isa::V207 && mmcr0 & mmcr0::PMAE != 0 && negative)
    }

    /// Checks what the kernel's work can have changed, for a group that counts it.
    pub fn check_after_kernel(&self, facility: &Facility, nip: u64) {
        let [found, own] = [facility, &self.own].map(|of| move |number| of.mfspr(number));
        let before = own(spr::MMCR0);
        let after = found(spr::MMCR0);
        let is_alert = (before ^ after) & (mmcr0::FC | mmcr0::PMAE | mmcr0::PMAO) != 0;
        let counted = before & mmcr0::FC == 0;
        let mut overflows = false;
        for pmc in (0..6).filter(|pmc| self.has_counter(*pmc)) {
            let number = spr::PMC1 + pmc as u32;
            let more = (found(number) as u32).wrapping_sub(own(number) as u32);
            let most = if self.in_kernel[pmc] && counted {
                1 << 16
            } else {
                0
            };
            assert!(
                more <= most,
                "SPR {number}: {more} more after the kernel's work"
            );
            overflows |= facility.is_negative(number) && !self.own.is_negative(number);
        }
        let alerts = overflows && before & mmcr0::PMAE != 0;
        assert!(is_alert || !alerts, "an alert in the kernel is lost");
        let mut same = vec![spr::MMCR1, spr::MMCR2, spr::MMCR3, spr::EBBHR];
        if !is_alert {
            same.extend([spr::BESCR, spr::EBBRR, spr::SIAR, spr::SDAR, spr::SIER]);
            same.extend([spr::SIER2, spr::SIER3]);
        }
        for number in same {
            assert_eq!(
                found(number),
                own(number),
                "SPR {number} after the kernel's work"
            );
        }
        if !is_alert {
            return;
        }
        let is_negative = (spr::PMC1..=spr::PMC6).any(|number| facility.is_negative(number));
        let frozen = after & (mmcr0::FC | mmcr0::PMAE | mmcr0::PMAO) == mmcr0::FC | mmcr0::PMAO;
        assert!(
            is_negative && before & mmcr0::PMAE != 0 && frozen,
            "MMCR0 is {after:#x} after the kernel's work, not {before:#x}"
        );
        let (was, is) = (own(spr::BESCR), found(spr::BESCR));
        let on = bescr::GE | bescr::PME;
        let (expected, branches) = match was & on {
            both if both == on => (bescr::PMEO, true),
            bescr::PME => (bescr::PMEO, false),
            _ => (was, false),
        };
        assert_eq!(
            is, expected,
            "BESCR after an alert in the kernel; {was:#x} before"
        );
        assert!(
            !branches || nip == own(spr::EBBHR) & !3,
            "no EBB, but {nip:#x}"
        );
    }

    /// The program goes on with what is in the registers, as a switch may have changed them.
    pub fn follow(&mut self, facility: &Facility, events: &[Rc<Event>]) {
        *self = Self {
            is_delayed: self.is_delayed,
            ..Self::resume(facility, events)
        };
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

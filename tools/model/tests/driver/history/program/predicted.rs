// SPDX-License-Identifier: GPL-2.0

//! A prediction of what a program with an EBB group finds, without the model's `Facility`. It
//! repeats what counters count for the codes of their events, the rules of Book II, "Event-Based
//! Branch Facility", and those of MMCR0 in Book III. So it detects a wrong rule of the model, which
//! two facilities share.
//!
//! The prediction relies on how the kernel sets a group up (`settings.rs` checks that): the only
//! freeze conditions are FC and FCnP0, and each enabled condition freezes. It follows the program
//! through switches and other groups of its own. It does not predict for a group that counts the
//! kernel, after `execve`, and where POWER8E delays an alert: there it continues with what the
//! program finds.
//!
//! It does not cover SDAR, SIER, SIER2, SIER3 and the BHRB.

use super::user;
use crate::{
    history::{op::UserWrite, oracle::Counts, world::HANDLER},
    perf_core::Event,
};
use pmu_model::{Facility, Instruction, Isa, Processor, Trace, bescr, mmcr0, mmcr2, spr};
use std::{
    collections::{HashMap, HashSet},
    rc::Rc,
};

const NEGATIVE: u32 = 0x8000_0000;

/// A counter with an event.
#[derive(Clone, Copy)]
struct Counter {
    id: usize,
    counts: Counts,
    value: u32,
}

/// The registers of a program.
pub struct Predicted {
    processor: Processor,
    /// Programs run with MSR\[HV\]=1, so FCnP0 freezes nothing.
    hypervisor: bool,
    /// PMC1 to PMC6.
    counters: [Option<Counter>; 6],
    /// Values of counters whose events are not on the PMU, by event number.
    saved: HashMap<usize, u32>,
    /// Events that are not on the PMU and whose counter values are unknown.
    unknown: HashSet<usize>,
    /// MMCR0\[FC\], \[PMAE\] and \[PMAO\].
    fc: bool,
    pmae: bool,
    pmao: bool,
    /// An exception exists. PMAO shows it, except on POWER8E.
    exception: bool,
    /// FCnP0.
    fcp0: [bool; 6],
    /// BESCR\[GE\], \[PME\] and \[PMEO\].
    ge: bool,
    pme: bool,
    pmeo: bool,
    ebbhr: u64,
    ebbrr: u64,
    /// SIAR of the last alert; undefined once PMAE is set again.
    siar: Option<u64>,
    /// The instruction that completed last.
    last: u64,
}

impl Predicted {
    /// Creates a prediction from what a program finds. Its events that are `off` the PMU keep their
    /// counts.
    pub fn found(
        facility: &Facility,
        events: &[Rc<Event>],
        off: impl Iterator<Item = usize>,
    ) -> Self {
        let read = |number| facility.mfspr(number);
        let [mmcr0, mmcr2, bescr] = [spr::MMCR0, spr::MMCR2, spr::BESCR].map(read);
        let mut counters = [None; 6];
        for event in events {
            let pmc = event.idx() - 1;
            counters[pmc] = Some(Counter {
                id: event.id,
                counts: Counts::on(facility.processor(), event),
                value: read(spr::PMC1 + pmc as u32) as u32,
            });
        }
        Self {
            processor: facility.processor(),
            hypervisor: facility.context.hypervisor,
            counters,
            saved: HashMap::new(),
            unknown: off.collect(),
            fc: mmcr0 & mmcr0::FC != 0,
            pmae: mmcr0 & mmcr0::PMAE != 0,
            pmao: mmcr0 & mmcr0::PMAO != 0,
            exception: facility.has_exception(),
            fcp0: core::array::from_fn(|pmc| mmcr2 & mmcr2::FCP0 >> (9 * pmc) != 0),
            ge: bescr & bescr::GE != 0,
            pme: bescr & bescr::PME != 0,
            pmeo: bescr & bescr::PMEO != 0,
            ebbhr: read(spr::EBBHR),
            ebbrr: read(spr::EBBRR),
            siar: facility.is_known(spr::SIAR).then(|| read(spr::SIAR)),
            last: 0,
        }
    }

    /// Puts other events on the PMU. A group that `is_new` finds the registers as if none had been
    /// written, except those of EBBs.
    pub fn regroup(&mut self, facility: &Facility, events: &[Rc<Event>], is_new: bool) {
        let left = self.counters.iter_mut().filter_map(Option::take);
        self.saved
            .extend(left.map(|counter| (counter.id, counter.value)));
        for event in events {
            let pmc = event.idx() - 1;
            let value = if self.unknown.remove(&event.id) {
                facility.mfspr(spr::PMC1 + pmc as u32) as u32
            } else {
                self.saved.remove(&event.id).unwrap_or(0)
            };
            self.counters[pmc] = Some(Counter {
                id: event.id,
                counts: Counts::on(self.processor, event),
                value,
            });
        }
        if is_new {
            (self.fc, self.pmae, self.pmao) = (false, true, false);
            (self.exception, self.fcp0, self.siar) = (false, [false; 6], None);
        }
        // A counter may be negative already.
        self.react(self.negative_before());
    }

    /// Returns the counters that were negative before the group was scheduled in. On POWER8 these
    /// are all that are negative now, because it does not react to them.
    fn negative_before(&self) -> [bool; 6] {
        match self.processor.isa() {
            Isa::V207 => self.negative(),
            _ => [false; 6],
        }
    }

    /// Replaces the value of SIAR or SDAR, by the register's number.
    pub fn lose(&mut self, number: u32, value: u64) {
        if number == spr::SIAR {
            self.siar = self.siar.map(|_| value);
        }
    }

    /// Executes an instruction of the program. Returns the address of the next one. A traced
    /// instruction enters the kernel first, and an EBB waits for the return from it.
    pub fn execute(&mut self, instruction: &Instruction, trace: Trace) -> u64 {
        self.last = instruction.address;
        let were_negative = self.negative();
        for (pmc, counter) in self.counters.iter_mut().enumerate() {
            let frozen = self.fc || self.fcp0[pmc] && !self.hypervisor;
            if let Some(counter) = counter.as_mut().filter(|_| !frozen) {
                let more = counter.counts.occurrences(instruction) as u32;
                counter.value = counter.value.wrapping_add(more);
            }
        }
        self.react(were_negative);
        let next = instruction.next();
        let is_branch = instruction.branch.is_some();
        if trace != Trace::Off {
            // A trace interrupt sets it if alerts are disabled.
            let is_set = (trace == Trace::Steps || is_branch) && !self.pmae;
            self.siar = is_set.then_some(instruction.address);
        }
        match trace {
            Trace::Steps => next,
            Trace::Branches if is_branch => next,
            _ => self.branch(next),
        }
    }

    /// Returns from the kernel to the program at `nip`. Returns the address where the program
    /// continues.
    pub fn enter(&mut self, nip: u64) -> u64 {
        self.branch(nip)
    }

    /// Writes a register of the program. Returns the address where the program continues.
    pub fn write(&mut self, write: UserWrite, nip: u64) -> u64 {
        let were_negative = self.negative();
        match write {
            UserWrite::Counter(pmc, left) => {
                if let Some(counter) = &mut self.counters[usize::from(pmc)] {
                    counter.value = NEGATIVE - left;
                }
            }
            UserWrite::Mmcr0(bits) => {
                let is_set = |bit: u8| bits >> bit & 1 != 0;
                let power8e = self.processor == Processor::Power8E;
                self.write_mmcr0(is_set(0), is_set(1), is_set(2) && !power8e);
            }
            UserWrite::Mmcr2(counters) => {
                self.fcp0 = core::array::from_fn(|pmc| counters >> pmc & 1 != 0);
            }
            UserWrite::Bescr(bits) => {
                self.ebbhr = HANDLER;
                (self.ge, self.pme, self.pmeo) = (bits & 1 != 0, bits & 2 != 0, false);
            }
            UserWrite::Return if self.ge || self.ebbrr == 0 => return nip,
            UserWrite::Return => {
                for counter in self.counters.iter_mut().flatten() {
                    if counter.value >= NEGATIVE {
                        counter.value = NEGATIVE - 20;
                    }
                }
                self.write_mmcr0(false, true, false);
                (self.ge, self.pme, self.pmeo) = (true, true, false);
                return self.branch(self.ebbrr & !3);
            }
            UserWrite::Threshold(_) | UserWrite::ClearBhrb => {}
        }
        self.react(were_negative);
        self.branch(nip)
    }

    /// Writes MMCR0. Writing PMAO as 1 creates an exception, except on POWER8E; writing it as 0
    /// ends it.
    fn write_mmcr0(&mut self, fc: bool, pmae: bool, pmao: bool) {
        (self.fc, self.pmae, self.pmao) = (fc, pmae, pmao);
        self.exception = pmao && (self.exception || self.processor != Processor::Power8E);
        self.siar = self.siar.filter(|_| !pmae);
    }

    fn negative(&self) -> [bool; 6] {
        self.counters
            .map(|counter| counter.is_some_and(|counter| counter.value >= NEGATIVE))
    }

    /// Reacts to negative counters: one freezes all, and causes an alert if PMAE is set. POWER8
    /// reacts only when a counter becomes negative. The exception becomes an event-based one as
    /// soon as PME is set.
    fn react(&mut self, were_negative: [bool; 6]) {
        let sees_state = self.processor.isa() > Isa::V207;
        let now = self.negative();
        if (0..6).any(|pmc| now[pmc] && (sees_state || !were_negative[pmc])) {
            self.fc = true;
            if self.pmae {
                (self.pmae, self.pmao, self.exception) = (false, true, true);
                self.siar = Some(self.last);
            }
        }
        if self.exception && self.pme {
            (self.pme, self.pmeo) = (false, true);
        }
    }

    /// Takes an event-based branch if its exception has occurred and GE is set.
    fn branch(&mut self, next: u64) -> u64 {
        if !(self.pmeo && self.ge) {
            return next;
        }
        (self.ge, self.ebbrr) = (false, next);
        self.ebbhr & !3
    }

    /// Compares the prediction with what the program finds.
    pub fn check(&self, facility: &Facility) {
        let bit = |is_set: bool, field: u64| if is_set { field } else { 0 };
        let bits =
            |set: &[(bool, u64)]| set.iter().map(|(is_set, field)| bit(*is_set, *field)).sum();
        let mmcr0 = bits(&[
            (self.fc, mmcr0::FC),
            (self.pmae, mmcr0::PMAE),
            (self.pmao, mmcr0::PMAO),
        ]);
        let mmcr2 = (0..6).map(|pmc| bit(self.fcp0[pmc], mmcr2::FCP0 >> (9 * pmc)));
        let bescr = bits(&[
            (self.ge, bescr::GE),
            (self.pme, bescr::PME),
            (self.pmeo, bescr::PMEO),
        ]);
        let registers = [
            (user(spr::MMCR0), mmcr0),
            (user(spr::MMCR2), mmcr2.sum()),
            (spr::BESCR, bescr),
            (spr::EBBHR, self.ebbhr),
            (spr::EBBRR, self.ebbrr),
        ];
        let counters = (user(spr::PMC1)..).zip(&self.counters);
        let values =
            counters.filter_map(|(number, counter)| Some((number, counter.as_ref()?.value)));
        let values = values.map(|(number, value)| (number, value.into()));
        let siar = self.siar.map(|siar| (user(spr::SIAR), siar));
        for (number, predicted) in registers.into_iter().chain(siar).chain(values) {
            let found = facility.problem_mfspr(number);
            assert_eq!(found, Ok(predicted), "SPR {number}, found and predicted");
        }
    }
}

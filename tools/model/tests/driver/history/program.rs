// SPDX-License-Identifier: GPL-2.0

//! The registers of a program with an EBB group. They must have the values of a facility of its
//! own, which executes only the program's instructions.
//!
//! If the events of the group exclude the kernel, the work of the kernel has no effect. The
//! counters of other events continue in the kernel, and may cause the alert there.

mod after_kernel;
mod groups;
mod negative;
mod predicted;
mod sampled;
mod settings;

pub use settings::check_closed;

use super::op::UserWrite;
use crate::{
    machine::Kind,
    perf_core::{Event, PerfCore},
};
use pmu_model::{
    BHRB_ENTRIES, Context, Facility, Instruction, Isa, Processor, Trace, bescr, mmcr0, mmcr2,
    mmcra, spr,
};
use predicted::Predicted;
use settings::check_settings;
use std::{
    collections::{HashMap, HashSet},
    rc::Rc,
};

/// Returns the number of a register in problem state.
const fn user(number: u32) -> u32 {
    number - spr::PROBLEM
}

/// The program of a task.
pub struct Program {
    own: Facility,
    /// The state predicted without the model's rules. If it is `None`, the program's next check
    /// defines it.
    predicted: Option<Predicted>,
    /// Address of the program's next instruction.
    pub nip: u64,
    /// The events of its group that are on the PMU.
    counters: Vec<Counter>,
    /// Counters of the group's events that are not on the PMU, by event number: the counter's
    /// value, and the event's count in the kernel at that time.
    saved: HashMap<usize, (u64, u64)>,
    /// The CPU on whose PMU its group was last.
    cpu: usize,
    /// Values that the program left in registers that are never saved (counters without an event,
    /// and the threshold counter), by CPU and register.
    left: HashMap<(usize, u32), u64>,
    /// CPUs on which the group has counted the kernel since a program was last checked there.
    counted_kernel: HashSet<usize>,
    /// POWER8E delays the alert that is in PMAO.
    is_delayed: bool,
    /// Addresses of the instructions that the program executed since its registers were reset, and
    /// of the data that they accessed.
    text: HashSet<u64>,
    data: HashSet<u64>,
}

/// An event of a group on the PMU.
struct Counter {
    id: usize,
    /// Index of the counter; 0 for PMC1.
    pmc: usize,
    includes_kernel: bool,
    /// The event's count in the kernel at the last comparison.
    in_kernel: u64,
}

/// Returns whether a group counts the kernel.
pub fn counts_kernel(events: &[Rc<Event>]) -> bool {
    events.iter().any(|event| !event.excludes_kernel())
}

fn counters(events: &[Rc<Event>]) -> Vec<Counter> {
    let counter = |event: &Rc<Event>| Counter {
        id: event.id,
        pmc: event.idx() - 1,
        includes_kernel: !event.excludes_kernel(),
        in_kernel: event.in_kernel.get(),
    };
    events.iter().map(counter).collect()
}

/// Returns an event's count in the kernel.
fn in_kernel(id: usize) -> u64 {
    PerfCore::get().all.borrow()[id].in_kernel.get()
}

/// Returns the registers that describe the sampled instruction.
fn of_sample(processor: Processor) -> &'static [u32] {
    let all = &[spr::SIAR, spr::SDAR, spr::SIER, spr::SIER2, spr::SIER3];
    if processor.isa() >= Isa::V31 {
        all
    } else {
        &all[..3]
    }
}

const NEGATIVE: u64 = 0x8000_0000;
const EBB: [u32; 3] = [spr::BESCR, spr::EBBHR, spr::EBBRR];

/// Returns the bits of MMCR0 and MMCR2 that belong to the kernel.
fn kernels(facility: &Facility) -> [u64; 2] {
    [
        facility.mfspr(spr::MMCR0) & !mmcr0::USER,
        facility.mfspr(spr::MMCR2) & !mmcr2::USER,
    ]
}

impl Program {
    /// Creates a program that has not used the facility yet.
    pub fn new(kind: Kind, context: Context, nip: u64) -> Self {
        let mut own = kind.facility(nip);
        own.context = Context {
            problem: true,
            ee: true,
            ..context
        };
        Self {
            own,
            predicted: None,
            nip,
            counters: Vec::new(),
            saved: HashMap::new(),
            cpu: 0,
            left: HashMap::new(),
            counted_kernel: HashSet::new(),
            is_delayed: false,
            text: HashSet::new(),
            data: HashSet::new(),
        }
    }

    /// Records the values that the program leaves on its CPU, because its group may be removed now.
    pub fn leave(&mut self) {
        for pmc in 0..6 {
            let number = spr::PMC1 + pmc as u32;
            if !self.has_counter(pmc) {
                self.left.insert((self.cpu, number), self.own.mfspr(number));
            }
        }
        let threshold = self.own.mfspr(spr::MMCRA) & self.users_mmcra();
        self.left.insert((self.cpu, spr::MMCRA), threshold);
        if self.counters.iter().any(|counter| counter.includes_kernel) {
            self.counted_kernel.insert(self.cpu);
        }
    }

    /// Returns the bits of MMCRA that belong to the program.
    fn users_mmcra(&self) -> u64 {
        mmcra::user(self.own.processor().isa() >= Isa::V31)
    }

    /// Resets all registers but those of EBBs, as for a program that has written none.
    fn reset(&mut self) {
        let processor = self.own.processor();
        let mmcra = self.own.mfspr(spr::MMCRA) & !self.users_mmcra();
        self.own.mtspr(spr::MMCRA, mmcra);
        for number in of_sample(processor) {
            self.own.mtspr(*number, 0);
        }
        let [mmcr0, mmcr2] = kernels(&self.own);
        self.own.mtspr(spr::MMCR2, mmcr2);
        self.own.mtspr(spr::MMCR0, mmcr0 & !mmcr0::EBE | mmcr0::FC);
        self.own.mtspr(spr::MMCR0, mmcr0 | mmcr0::PMAE);
        self.is_delayed = false;
        self.text.clear();
        self.data.clear();
    }

    /// Replaces the program by another one, which starts at `nip`. Its counters continue, except
    /// for values that would cause the old program's alert.
    pub fn exec(&mut self, facility: Option<&Facility>, nip: u64) {
        (self.nip, self.predicted) = (nip, None);
        self.left.clear();
        for pmc in 0..6 {
            if !self.has_counter(pmc) {
                self.own.mtspr(spr::PMC1 + pmc as u32, 0);
            }
        }
        for counter in &mut self.counters {
            let number = spr::PMC1 + counter.pmc as u32;
            let more = in_kernel(counter.id) - counter.in_kernel;
            let found = facility.map_or(0, |facility| facility.mfspr(number));
            if self.own.mfspr(number) + more >= NEGATIVE && found <= more {
                self.own.mtspr(number, found);
                counter.in_kernel += more;
            }
        }
        for (id, (value, before)) in &mut self.saved {
            let more = in_kernel(*id) - *before;
            if *value + more >= NEGATIVE {
                (*value, *before) = (0, *before + more);
            }
        }
        for number in EBB {
            self.own.mtspr(number, 0);
        }
        self.reset();
        self.own.clrbhrb();
    }

    /// Returns whether an event is on PMC`number + 1`.
    pub fn has_counter(&self, number: usize) -> bool {
        self.counters.iter().any(|counter| counter.pmc == number)
    }

    /// Returns whether these events are the group of the program.
    pub fn has(&self, events: &[Rc<Event>]) -> bool {
        let own = self.counters.iter().map(|own| (own.id, own.pmc));
        own.eq(events.iter().map(|event| (event.id, event.idx() - 1)))
    }

    /// Sets which instructions of the program are traced.
    pub fn set_trace(&mut self, trace: Trace) {
        self.own.context.trace = trace;
    }

    /// Executes an instruction of the program. Returns the address of the next one.
    pub fn execute(&mut self, instruction: &Instruction) -> u64 {
        self.text.insert(instruction.address);
        self.data.extend(instruction.data);
        let executed = self.own.execute(instruction);
        self.nip = executed.next;
        if let Some(predicted) = &mut self.predicted {
            let next = predicted.execute(instruction, self.own.context.trace);
            assert_eq!(self.nip, next, "where it goes on, its own and predicted");
        }
        self.nip
    }

    /// Returns to the program from the kernel, which a trace interrupt entered. If an event-based
    /// branch was due after the same instruction, it occurs now.
    pub fn enter(&mut self) {
        if let Some(predicted) = &mut self.predicted {
            predicted.enter(self.nip);
        }
        self.nip = self.own.enter_problem_state(self.nip);
    }

    /// Writes a register by calling `f` for the program's facility. Returns the address where the
    /// program continues, as `f` does.
    pub fn write(&mut self, write: UserWrite, f: impl FnOnce(&mut Facility) -> u64) -> u64 {
        let before = std::mem::replace(&mut self.nip, f(&mut self.own));
        if let Some(predicted) = &mut self.predicted {
            let next = predicted.write(write, before);
            assert_eq!(self.nip, next, "where it goes on, its own and predicted");
        }
        self.nip
    }

    /// Checks what the program finds as the kernel returns to it at `nip`, and continues with those
    /// values. PMC5 and PMC6 have counted `in_kernel` on this CPU since a program was last checked
    /// there.
    pub fn sync(
        &mut self,
        cpu: usize,
        task: usize,
        facility: &Facility,
        events: &[Rc<Event>],
        nip: u64,
        in_kernel: [u64; 2],
    ) {
        check_settings(facility, events);
        self.cpu = cpu;
        self.lose_counters(facility, in_kernel);
        self.lose_threshold(facility);
        self.lose_sample(task, facility);
        let is_delayed = self.is_delayed();
        if is_delayed && self.own.mfspr(spr::BESCR) & bescr::PMEO == 0 {
            self.check_delayed(facility);
        } else if counts_kernel(events) {
            self.check_after_kernel(task, facility, nip);
        } else {
            let own = self.own.enter_problem_state(self.nip);
            assert_eq!(nip, own, "where it goes on");
            if let Some(predicted) = &mut self.predicted {
                let next = predicted.enter(self.nip);
                assert_eq!(nip, next, "where it goes on, found and predicted");
            }
            self.check(facility);
            let off = self.saved.keys().copied();
            let found = || Predicted::found(facility, events, off);
            self.predicted.get_or_insert_with(found);
            if !is_delayed {
                self.nip = nip;
                return;
            }
            // The program has taken its EBB. Another one would be delayed.
        }
        let off = self.saved.keys().copied();
        self.predicted = Some(Predicted::found(facility, events, off));
        self.own = facility.clone();
        (self.own.context.problem, self.own.context.ee) = (true, true);
        (self.nip, self.counters) = (nip, counters(events));
    }

    /// Checks the BHRB. Its newest entries may be branches of the kernel, for which `may_be_there`
    /// returns true; a switch clears the BHRB.
    fn check_branches(&self, facility: &Facility, may_be_there: fn(u64) -> bool) {
        let [found, own] = [facility, &self.own].map(|of| {
            let recorded = (0..BHRB_ENTRIES).map(|entry| of.recorded_branch(entry));
            let recorded = recorded.skip_while(|entry| may_be_there(*entry));
            recorded.take_while(|entry| *entry != 0).collect::<Vec<_>>()
        });
        let rest = &own[..found.len().min(own.len())];
        assert_eq!(found, rest, "the BHRB, found and its own");
    }

    /// Compares what the program finds on the CPU.
    pub fn check(&self, facility: &Facility) {
        let mut numbers = vec![
            user(spr::MMCR0),
            user(spr::MMCR2),
            user(spr::MMCRA),
            user(spr::MMCR1),
            spr::BESCR,
            spr::EBBHR,
            spr::EBBRR,
        ];
        if facility.processor().isa() >= Isa::V31 {
            numbers.push(user(spr::MMCR3));
        }
        numbers.extend(user(spr::PMC1)..=user(spr::PMC6));
        for number in numbers {
            let (found, own) = (
                facility.problem_mfspr(number),
                self.own.problem_mfspr(number),
            );
            assert_eq!(found, own, "SPR {number} of the program, found and its own");
        }
        self.check_sample(facility);
        self.check_branches(facility, |_| false);
        if let Some(predicted) = &self.predicted {
            predicted.check(facility);
        }
    }
}

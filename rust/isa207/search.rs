// SPDX-License-Identifier: GPL-2.0

//! Looks for alternatives to the codes asked for, so that a group can count.
//!
//! The search goes through the events in order and takes the first candidate
//! that goes together with those chosen so far; when none does, it goes back to
//! the event before and takes its next one. The answer is the first possible
//! choice in dictionary order.
//!
//! Two things keep it short and do not change the answer. Events with a single
//! candidate are settled before the search starts, so that it only has to move
//! the others out of their way. And whether a choice leaves enough counters for
//! the events after it is found by counting, not by trying their choices.

use super::{
    alternatives::Candidates,
    constraint::Demands,
    cpu::CpuModel,
    event_code::EventCode,
    refusal::Refusal, //
    request::{
        Pmc,
        Request,
        MAX_EVENTS, //
    },
};

/// One event in the search.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    candidates: Candidates,
    /// Number of candidates tried; the last of them is the current choice.
    tried: usize,
    /// The demands of all events settled before this one.
    before: Demands,
    /// The counters that the events with a single candidate and those after
    /// this one could take together ([`Taken`]).
    rest: Taken,
}

impl Step {
    /// Starts over with the demands of the events before.
    fn enter(&mut self, before: Demands) {
        self.before = before;
        self.tried = 0;
    }

    /// Takes the next candidate that goes together with the events before and
    /// leaves counters for the rest; returns the demands with it. `None` if there
    /// is no more.
    ///
    /// `settled` are the demands of the events with a single candidate.
    fn advance(&mut self, settled: &Demands) -> Option<Demands> {
        let untried = self.candidates.as_slice().get(self.tried..)?;
        for candidate in untried {
            self.tried = self.tried.wrapping_add(1);
            let Ok(demands) = self.before.with(&candidate.demands) else {
                continue;
            };
            let named = demands.named() & !settled.named();
            let programmable = demands.programmable().wrapping_sub(settled.programmable());
            if self.rest.leaves(named, programmable) {
                return Some(demands);
            }
        }
        None
    }

    /// Whether there is a choice.
    fn is_open(&self) -> bool {
        self.candidates.as_slice().len() > 1
    }

    /// The code that is chosen now.
    fn choice(&self) -> Option<EventCode> {
        let last = self.tried.checked_sub(1)?;
        Some(self.candidates.as_slice().get(last)?.code)
    }

    /// The counters on which any candidate could count, a bit each.
    fn counters(&self) -> u8 {
        let sets = self.candidates.as_slice().iter();
        sets.fold(0, |all, candidate| all | candidate.demands.counters())
    }
}

/// Chooses a code for each request and stores it in `codes`; returns what the
/// chosen ones demand.
///
/// `why` says why the codes as asked for do not go together; it is the answer
/// if no others do, too.
pub(super) fn search(
    cpu: &CpuModel,
    reqs: &[Request],
    codes: &mut [EventCode; MAX_EVENTS],
    why: Refusal,
) -> Result<Demands, Refusal> {
    let mut steps = [Step::default(); MAX_EVENTS];
    for (step, req) in steps.iter_mut().zip(reqs) {
        step.candidates = Candidates::new(cpu, req);
    }
    let mut taken = Taken::NONE;
    for step in steps.iter().filter(|step| !step.is_open()) {
        taken = taken.and_one_of(step.counters());
    }
    for step in steps.iter_mut().rev().filter(|step| step.is_open()) {
        step.rest = taken;
        taken = taken.and_one_of(step.counters());
    }
    if !taken.leaves(0, 0) {
        return Err(why);
    }
    let mut settled = Demands::default();
    for step in steps.iter_mut() {
        if let [only] = step.candidates.as_slice() {
            settled = settled.with(&only.demands)?;
            step.tried = 1;
        }
    }
    // What is left to ask about the whole group concerns events without
    // alternatives only (`power9.rs` sees to that).
    settled.complete()?;

    // The steps that leave a choice, in order, and after them `None`.
    let mut open = [const { None }; MAX_EVENTS];
    let with_choice = steps.iter_mut().filter(|step| step.is_open());
    for (slot, step) in open.iter_mut().zip(with_choice) {
        *slot = Some(step);
    }
    let [Some(first), ..] = &mut open else {
        return Err(why);
    };
    first.enter(settled);

    let mut depth: usize = 0;
    let found = loop {
        let Some(Some(step)) = open.get_mut(depth) else {
            return Err(why);
        };
        let Some(demands) = step.advance(&settled) else {
            // No candidate is left: try another for the event before. Below
            // the first event there is none, and no step of this number.
            depth = depth.wrapping_sub(1);
            continue;
        };
        depth = depth.wrapping_add(1);
        match open.get_mut(depth) {
            Some(Some(next)) => next.enter(demands),
            _ => break demands,
        }
    };
    for (code, choice) in codes.iter_mut().zip(steps.iter().map_while(Step::choice)) {
        *code = choice;
    }
    Ok(found)
}

/// The sets of counters that some events could take together, each event one.
///
/// A set of counters is a number below 64, so a word has a bit for each set. One
/// more counter in the set is a shift by its value.
#[derive(Clone, Copy, Debug, Default)]
struct Taken(u64);

impl Taken {
    /// No event takes no counter: the empty set only.
    const NONE: Taken = Taken(1);

    /// With one more event, which could take any counter of the set `own`. An
    /// empty one stands for no event.
    fn and_one_of(self, own: u8) -> Self {
        if own == 0 {
            return self;
        }
        let usable = Pmc::ALL.into_iter().filter(|pmc| own & pmc.bit() != 0);
        Self(usable.fold(0, |sets, pmc| {
            sets | (self.0 & sets_without(pmc)).wrapping_shl(pmc.bit().into())
        }))
    }

    /// Whether the events can do without the counters of the set `named`, and
    /// with `programmable` of PMC1 to PMC4 less, those in `named` among them.
    fn leaves(self, named: u8, programmable: u8) -> bool {
        let named = Pmc::ALL.into_iter().filter(|pmc| named & pmc.bit() != 0);
        let few = match programmable {
            0 => u64::MAX,
            1 => const { sets_of_at_most(3) },
            2 => const { sets_of_at_most(2) },
            3 => const { sets_of_at_most(1) },
            _ => const { sets_of_at_most(0) },
        };
        named.fold(self.0 & few, |sets, pmc| sets & sets_without(pmc)) != 0
    }
}

/// All sets with at most so many of PMC1 to PMC4, a bit each.
const fn sets_of_at_most(number: u32) -> u64 {
    let mut sets: u64 = 0;
    let mut set: u32 = 0;
    while set < 64 {
        if (set & 0x0f).count_ones() <= number {
            sets |= 1_u64.wrapping_shl(set);
        }
        set = set.wrapping_add(1);
    }
    sets
}

/// All sets of counters that `pmc` is not in, a bit each.
const fn sets_without(pmc: Pmc) -> u64 {
    match pmc {
        Pmc::Pmc1 => 0x5555_5555_5555_5555,
        Pmc::Pmc2 => 0x3333_3333_3333_3333,
        Pmc::Pmc3 => 0x0f0f_0f0f_0f0f_0f0f,
        Pmc::Pmc4 => 0x00ff_00ff_00ff_00ff,
        Pmc::Pmc5 => 0x0000_ffff_0000_ffff,
        Pmc::Pmc6 => 0x0000_0000_ffff_ffff,
    }
}

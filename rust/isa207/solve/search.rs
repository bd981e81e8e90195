// SPDX-License-Identifier: GPL-2.0

//! Looks for alternatives to the codes asked for, so that a group can count.
//!
//! The search goes through the events in order and gives each the first alternative whose
//! constraints can be met together with those chosen so far; where none can, it goes back to the
//! event before and gives that its next one. The answer is the first possible choice in dictionary
//! order.
//!
//! Two things keep it short and do not change the answer. Events with only one alternative are
//! settled before the search starts, so that it only has to move the others out of their way. And
//! whether a choice leaves enough counters for the events after it is found by counting, not by
//! trying their alternatives.

use super::{
    super::{
        codes::event_code::EventCode,
        models::model::CpuModel,
        pmc::{
            Pmc,
            COUNTERS, //
        },
        refusal::Refusal,
        request::{
            Machine,
            Request, //
        }, //
    },
    alternatives::{
        usable_pmcs,
        Alternatives, //
    },
    constraint::Constraints, //
};

/// One event in the search.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    alternatives: Alternatives,
    /// Number of alternatives tried; the last of them is the current choice.
    tried: usize,
    /// The constraints of all events settled before this one.
    before: Constraints,
    /// The counters that the events with one alternative and those after this one could take.
    rest: PmcSets,
}

impl Step {
    /// Starts over with the constraints of the events before.
    fn restart(&mut self, before: Constraints) {
        self.before = before;
        self.tried = 0;
    }

    /// Takes the next alternative that can be counted beside the events before and leaves counters
    /// for the rest; returns the constraints with it. `None` if there is no more.
    ///
    /// `settled` are the constraints of the events with one alternative.
    fn advance(&mut self, settled: &Constraints) -> Option<Constraints> {
        let untried = self.alternatives.as_slice().get(self.tried..)?;
        for alternative in untried {
            self.tried = self.tried.wrapping_add(1);
            let Ok(constraints) = self.before.with(&alternative.constraints) else {
                continue;
            };
            let named = constraints.named_pmcs() & !settled.named_pmcs();
            let all = constraints.programmable();
            let programmable = all.wrapping_sub(settled.programmable());
            if self.rest.fit_beside(named, programmable) {
                return Some(constraints);
            }
        }
        None
    }

    /// Whether there is more than one alternative.
    fn has_choice(&self) -> bool {
        self.alternatives.as_slice().len() > 1
    }

    /// The code that is chosen now.
    fn chosen(&self) -> Option<EventCode> {
        let last = self.tried.checked_sub(1)?;
        Some(self.alternatives.as_slice().get(last)?.code)
    }

    /// The counters that any of the alternatives could use, a bit each.
    fn usable_pmcs(&self) -> u8 {
        let all = self.alternatives.as_slice().iter();
        all.fold(0, |pmcs, one| pmcs | one.constraints.usable_pmcs())
    }
}

impl CpuModel {
    /// Whether there are counters for events that cannot count together by their codes. If not, the
    /// search for other codes would find none.
    fn has_counters(&self, reqs: &[Request]) -> bool {
        let mut taken = PmcSets::NO_EVENT;
        let mut any_choice = false;
        for req in reqs {
            let (usable, choice) = usable_pmcs(self, req.code, req.only_count_run);
            taken = taken.with_event(usable);
            any_choice |= choice;
        }
        any_choice && taken.fit_beside(0, 0)
    }
}

/// Chooses a code for each request and stores it in `codes`; returns the constraints of the chosen
/// ones.
///
/// `why` says why the codes as asked for cannot be counted together; it is the answer if no others
/// can, either.
pub(super) fn search(
    model: &CpuModel,
    machine: Machine,
    reqs: &[Request],
    codes: &mut [EventCode; COUNTERS],
    why: Refusal,
) -> Result<Constraints, Refusal> {
    // Before anything is prepared: a rotation tries one event too many each time.
    if !model.has_counters(reqs) {
        return Err(why);
    }
    let mut steps = [Step::default(); COUNTERS];
    for (step, req) in steps.iter_mut().zip(reqs) {
        step.alternatives = Alternatives::new(model, machine, req);
    }
    let mut taken = PmcSets::NO_EVENT;
    for step in steps.iter().filter(|step| !step.has_choice()) {
        taken = taken.with_event(step.usable_pmcs());
    }
    for step in steps.iter_mut().rev().filter(|step| step.has_choice()) {
        step.rest = taken;
        taken = taken.with_event(step.usable_pmcs());
    }
    let mut settled = Constraints::default();
    for step in steps.iter_mut() {
        if let [only] = step.alternatives.as_slice() {
            settled = settled.with(&only.constraints)?;
            step.tried = 1;
        }
    }
    // The rule about the whole group concerns only events with one alternative: see `power9.rs`.
    settled.check_group()?;

    // The steps with a choice, in order, and `None` after them.
    let mut open = [const { None }; COUNTERS];
    let with_choice = steps.iter_mut().filter(|step| step.has_choice());
    for (slot, step) in open.iter_mut().zip(with_choice) {
        *slot = Some(step);
    }
    let [Some(first), ..] = &mut open else {
        return Err(why);
    };
    first.restart(settled);

    let mut depth: usize = 0;
    let found = loop {
        // Before the first step, `depth` has wrapped: there is no such step either.
        let Some(Some(step)) = open.get_mut(depth) else {
            return Err(why);
        };
        let Some(constraints) = step.advance(&settled) else {
            // No alternative is left: try another for the event before.
            depth = depth.wrapping_sub(1);
            continue;
        };
        depth = depth.wrapping_add(1);
        match open.get_mut(depth) {
            Some(Some(next)) => next.restart(constraints),
            _ => break constraints,
        }
    };
    for (code, chosen) in codes.iter_mut().zip(steps.iter().map_while(Step::chosen)) {
        *code = chosen;
    }
    Ok(found)
}

/// The sets of counters that some events could take, each event one counter.
///
/// A set of counters is a number below 64, so a word has a bit for each set. One more counter in
/// the set is a shift by that counter's bit.
#[derive(Clone, Copy, Debug, Default)]
struct PmcSets(u64);

impl PmcSets {
    /// No event takes no counter: the empty set only.
    const NO_EVENT: PmcSets = PmcSets(1);

    /// With one more event, which could take any counter of the set `usable`. An empty one stands
    /// for no event.
    fn with_event(self, usable: u8) -> Self {
        if usable == 0 {
            return self;
        }
        let pmcs = Pmc::ALL.into_iter().filter(|pmc| usable & pmc.bit() != 0);
        Self(pmcs.fold(0, |sets, pmc| {
            sets | (self.0 & sets_without(pmc)).wrapping_shl(pmc.bit().into())
        }))
    }

    /// Whether the events can do without the counters of the set `named`, and with `programmable`
    /// fewer of PMC1 to PMC4, those in `named` among them.
    fn fit_beside(self, named: u8, programmable: u8) -> bool {
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

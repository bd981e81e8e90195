// SPDX-License-Identifier: GPL-2.0

//! Searches for alternatives to the requested codes so that a group can count.
//!
//! The search takes the events in order and gives each the first alternative whose constraints can
//! be met together with those chosen so far. If an event has none, the search returns to the
//! previous event and gives that its next alternative. The answer is the first possible choice in
//! dictionary order.
//!
//! Two measures keep the search short and do not change the answer. Events with only one
//! alternative are fixed before the search starts, so the others avoid their counters. And the
//! search counts whether a choice leaves enough counters for the later events, instead of trying
//! their alternatives.

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
            Platform,
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
    /// The constraints of all events fixed before this one.
    before: Constraints,
    /// The counters that the events with one alternative, and the events after this one, could
    /// take.
    remaining_pmcs: PmcSets,
}

impl Step {
    /// Restarts the step with the constraints of the events before it.
    fn restart(&mut self, before: Constraints) {
        self.before = before;
        self.tried = 0;
    }

    /// Takes the next alternative that can count together with the earlier events and leaves enough
    /// counters for the later ones. Returns the constraints including it; `None` if no alternative
    /// remains.
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
            if self.remaining_pmcs.fit_beside(named, programmable) {
                return Some(constraints);
            }
        }
        None
    }

    /// Returns whether there is more than one alternative.
    fn has_choice(&self) -> bool {
        self.alternatives.as_slice().len() > 1
    }

    /// Returns the code that is currently chosen.
    fn chosen(&self) -> Option<EventCode> {
        let last = self.tried.checked_sub(1)?;
        Some(self.alternatives.as_slice().get(last)?.code)
    }

    /// Returns the counters that any of the alternatives could use, one bit each.
    fn usable_pmcs(&self) -> u8 {
        let all = self.alternatives.as_slice().iter();
        all.fold(0, |pmcs, one| pmcs | one.constraints.usable_pmcs())
    }
}

impl CpuModel {
    /// Returns whether there are enough counters for events that cannot count together with the
    /// requested codes. If not, a search for alternative codes would fail.
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

/// Chooses a code for each request and stores it in `codes`. Returns the constraints of the chosen
/// codes.
///
/// `why` is the reason why the requested codes cannot count together. It is returned if no other
/// codes can, either.
pub(super) fn search(
    model: &CpuModel,
    platform: Platform,
    reqs: &[Request],
    codes: &mut [EventCode; COUNTERS],
    why: Refusal,
) -> Result<Constraints, Refusal> {
    // Check this before anything is prepared: each rotation of events tries one event too many.
    if !model.has_counters(reqs) {
        return Err(why);
    }
    let mut steps = [Step::default(); COUNTERS];
    for (step, req) in steps.iter_mut().zip(reqs) {
        step.alternatives = Alternatives::new(model, platform, req);
    }
    let mut taken = PmcSets::NO_EVENT;
    for step in steps.iter().filter(|step| !step.has_choice()) {
        taken = taken.with_event(step.usable_pmcs());
    }
    for step in steps.iter_mut().rev().filter(|step| step.has_choice()) {
        step.remaining_pmcs = taken;
        taken = taken.with_event(step.usable_pmcs());
    }
    let mut settled = Constraints::default();
    for step in steps.iter_mut() {
        if let [only] = step.alternatives.as_slice() {
            settled = settled.with(&only.constraints)?;
            step.tried = 1;
        }
    }
    // The rule about a whole group concerns only events with one alternative: see `power9.rs`.
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
        // Before the first step `depth` wraps to the maximum, where there is no step either.
        let Some(Some(step)) = open.get_mut(depth) else {
            return Err(why);
        };
        let Some(constraints) = step.advance(&settled) else {
            // No alternative remains, so try another one for the previous event.
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

/// The sets of counters that some events can take, one counter per event.
///
/// A set of counters is a number below 64, so a word has a bit for each set. Adding a counter to a
/// set shifts the set's bit left by the counter's own bit value.
#[derive(Clone, Copy, Debug, Default)]
struct PmcSets(u64);

impl PmcSets {
    /// No events: only the empty set.
    const NO_EVENT: PmcSets = PmcSets(1);

    /// Returns the sets with one more event, which can take any counter of the set `usable`. An
    /// empty `usable` means that there is no event.
    fn with_event(self, usable: u8) -> Self {
        if usable == 0 {
            return self;
        }
        let pmcs = Pmc::ALL.into_iter().filter(|pmc| usable & pmc.bit() != 0);
        Self(pmcs.fold(0, |sets, pmc| {
            sets | (self.0 & sets_without(pmc)).wrapping_shl(pmc.bit().into())
        }))
    }

    /// Returns whether the events fit if they must not use the counters of the set `named` and can
    /// use `programmable` fewer of PMC1 to PMC4, where `programmable` includes those in `named`.
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

/// Returns all sets with at most `number` of PMC1 to PMC4, one bit each.
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

/// Returns all sets without `pmc`, one bit each.
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

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
//! the others out of their way. And whether there are enough counters at all is
//! found by counting, not by trying all choices.

use super::alternatives::Candidates;
use super::constraint::Demands;
use super::cpu::Cpu;
use super::event_code::EventCode;
use super::refusal::Refusal;
use super::request::Pmc;
use super::request::Request;
use super::request::MAX_EVENTS;

/// One event in the search.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    candidates: Candidates,
    /// Number of candidates tried; the last of them is the current choice.
    tried: usize,
    /// The demands of all events settled before this one.
    before: Demands,
}

impl Step {
    /// Starts over with the demands of the events before.
    fn enter(&mut self, before: Demands) {
        self.before = before;
        self.tried = 0;
    }

    /// Takes the next candidate that goes together with the events before and
    /// returns the demands with it; `None` if there is no more.
    fn advance(&mut self) -> Option<Demands> {
        let untried = self.candidates.as_slice().get(self.tried..)?;
        for candidate in untried {
            self.tried = self.tried.wrapping_add(1);
            if let Ok(demands) = self.before.with(&candidate.demands) {
                return Some(demands);
            }
        }
        None
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
    cpu: &Cpu,
    reqs: &[Request],
    codes: &mut [EventCode; MAX_EVENTS],
    why: Refusal,
) -> Result<Demands, Refusal> {
    let mut steps = [Step::default(); MAX_EVENTS];
    for (step, req) in steps.iter_mut().zip(reqs) {
        step.candidates = Candidates::new(cpu, req);
    }
    if !enough_counters(steps.each_ref().map(Step::counters)) {
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
    let several = |step: &&mut Step| step.candidates.as_slice().len() > 1;
    for (slot, step) in open.iter_mut().zip(steps.iter_mut().filter(several)) {
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
        let Some(demands) = step.advance() else {
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

/// Whether each event can have a counter of its own, whatever else it wants,
/// given the counters each could use (none for no event).
///
/// A set of counters is a number below 64, so a word has a bit for each set.
/// `taken` holds the sets that the events so far can take; one more counter in
/// the set is a shift by its value.
fn enough_counters(usable: [u8; MAX_EVENTS]) -> bool {
    let mut taken: u64 = 1;
    for own in usable.into_iter().filter(|&own| own != 0) {
        let usable = Pmc::ALL.into_iter().filter(|pmc| own & pmc.bit() != 0);
        taken = usable.fold(0, |sets, pmc| {
            sets | (taken & sets_without(pmc)).wrapping_shl(pmc.bit().into())
        });
    }
    taken != 0
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

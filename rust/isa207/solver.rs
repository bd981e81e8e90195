// SPDX-License-Identifier: GPL-2.0

//! Finds a way to count a group of events at the same time.
//!
//! Each event has one to three candidate codes. The search goes through the
//! events in order and takes the first candidate that goes together with those
//! chosen so far; when none does, it goes back to the event before and takes
//! its next one. The answer is the first possible choice in dictionary order,
//! so codes stay as asked for whenever that works, and the same group always
//! gets the same answer.
//!
//! Events with a single candidate are settled before the search starts. That
//! does not change the answer, but a conflict among them is found at once, and
//! all the search does is to move events with alternatives out of their way. It
//! visits fewer than 100 nodes even for six events of three candidates each.
//!
//! Counters: events that name one get it; the others get the lowest free one of
//! PMC1 to PMC4 in order.

use super::alternatives::Candidate;
use super::alternatives::Candidates;
use super::check;
use super::constraint::Tally;
use super::cpu::Cpu;
use super::event_code::EventCode;
use super::mmcr::Mmcr;
use super::refusal::Refusal;
use super::request::Assignment;
use super::request::Machine;
use super::request::Pmc;
use super::request::Request;
use super::request::COUNTERS;
use super::request::MAX_EVENTS;

/// One event in the search.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    candidates: Candidates,
    /// Number of candidates tried; the last of them is the current choice.
    tried: usize,
    /// The demands of all events settled before this one.
    before: Tally,
}

impl Step {
    /// Starts over with the demands of the events before.
    fn enter(&mut self, before: Tally) {
        self.before = before;
        self.tried = 0;
    }

    /// Takes the next candidate that goes together with the events before and
    /// returns the demands with it; `None` if there is no more. The first
    /// refusal of the search is kept in `why`: it names what stands in the way
    /// of the codes as they were asked for.
    fn advance(&mut self, why: &mut Option<Refusal>) -> Option<Tally> {
        let untried = self.candidates.as_slice().get(self.tried..)?;
        for candidate in untried {
            self.tried = self.tried.wrapping_add(1);
            match self.before.with(&candidate.constraint) {
                Ok(tally) => return Some(tally),
                Err(refusal) => _ = why.get_or_insert(refusal),
            }
        }
        None
    }

    /// The candidate that is chosen now.
    fn choice(&self) -> Option<&Candidate> {
        let last = self.tried.checked_sub(1)?;
        self.candidates.as_slice().get(last)
    }
}

/// See [`Cpu::solve`].
pub(super) fn solve(cpu: &Cpu, reqs: &[Request], machine: Machine) -> Result<Assignment, Refusal> {
    if reqs.len() > COUNTERS {
        return Err(Refusal::TooManyEvents);
    }
    let mut steps = [Step::default(); MAX_EVENTS];
    for (step, req) in steps.iter_mut().zip(reqs) {
        check::check(cpu, req)?;
        step.candidates = Candidates::new(cpu, req);
    }
    let total = search(&mut steps)?;

    let mut assignment = Assignment {
        len: reqs.len(),
        pmc: [Pmc::Pmc1; MAX_EVENTS],
        code: [EventCode::default(); MAX_EVENTS],
        mmcr: Mmcr::default(),
    };
    let mut taken = total.named;
    let slots = assignment.pmc.iter_mut().zip(assignment.code.iter_mut());
    for ((pmc, code), step) in slots.zip(&steps) {
        let Some(choice) = step.choice() else {
            continue;
        };
        *code = choice.code;
        // INVARIANT: the tally allows at most four events on PMC1 to PMC4, so
        // one of them is free for each event that names none.
        *pmc = match choice.constraint.pmc {
            Some(named) => named,
            None => lowest_free(taken).ok_or(Refusal::ProgrammableCountersFull)?,
        };
        taken |= pmc.bit();
    }
    assignment.mmcr = Mmcr::new(cpu, reqs, &assignment, machine);
    Ok(assignment)
}

/// Chooses a candidate for each step that has any; returns their demands.
fn search(steps: &mut [Step; MAX_EVENTS]) -> Result<Tally, Refusal> {
    let mut settled = Tally::default();
    for step in steps.iter_mut() {
        if let [only] = step.candidates.as_slice() {
            settled = settled.with(&only.constraint)?;
            step.tried = 1;
        }
    }

    // The steps that leave a choice, in order, and after them `None`.
    let mut open = [const { None }; MAX_EVENTS];
    let several = steps
        .iter_mut()
        .filter(|s| s.candidates.as_slice().len() > 1);
    for (slot, step) in open.iter_mut().zip(several) {
        *slot = Some(step);
    }
    let [Some(first), ..] = &mut open else {
        return settled.complete().map(|()| settled);
    };
    first.enter(settled);

    let mut why = None;
    let mut depth: usize = 0;
    while let Some(Some(step)) = open.get_mut(depth) {
        let back = depth.checked_sub(1);
        let Some(tally) = step.advance(&mut why) else {
            // The last candidate failed: try another for the event before.
            let Some(back) = back else { break };
            depth = back;
            continue;
        };
        if let Some(Some(next)) = open.get_mut(depth.wrapping_add(1)) {
            next.enter(tally);
            depth = depth.wrapping_add(1);
            continue;
        }
        // That was the last event. If the group cannot count like this, the
        // loop goes on with its next candidate.
        match tally.complete() {
            Ok(()) => return Ok(tally),
            Err(refusal) => _ = why.get_or_insert(refusal),
        }
    }
    // INVARIANT: a search fails only after a candidate was refused.
    Err(why.unwrap_or(Refusal::TooManyEvents))
}

/// The lowest programmable counter outside the set `taken`.
fn lowest_free(taken: u8) -> Option<Pmc> {
    let free = |pmc: &Pmc| pmc.is_programmable() && taken & pmc.bit() == 0;
    Pmc::ALL.into_iter().find(free)
}

// SPDX-License-Identifier: GPL-2.0

//! Counts a group of events at the same time: which codes, which counters.
//!
//! Codes stay as asked for whenever that works; else `search.rs` looks for
//! alternatives. Events whose code names a counter get it; the others get the
//! lowest free one of PMC1 to PMC4, in order. The same group always gets the
//! same answer.

use super::{
    check,
    constraint::{
        Demands,
        Selector, //
    },
    cpu::CpuModel,
    event_code::EventCode,
    mmcr::{
        self,
        Mmcr, //
    },
    refusal::Refusal,
    request::{
        Assignment,
        Machine,
        Pmc,
        Request,
        COUNTERS,
        MAX_EVENTS, //
    },
    search, //
};

/// See [`CpuModel::solve`].
pub(super) fn solve(
    cpu: &CpuModel,
    reqs: &[Request],
    machine: Machine,
) -> Result<Assignment, Refusal> {
    if reqs.len() > COUNTERS {
        return Err(Refusal::TooManyEvents);
    }
    for req in reqs {
        check::check(cpu, req)?;
    }
    // No choice of codes helps if the requests disagree apart from them.
    let apart_from_codes = reqs.iter().map(Demands::of_request);
    all_together(apart_from_codes)?;
    if machine.strict_branch_filters && mmcr::common_ifm(reqs).is_none() {
        return Err(Refusal::Conflict(Selector::BranchFilter));
    }

    let mut assignment = Assignment {
        len: reqs.len(),
        pmc: [Pmc::Pmc1; MAX_EVENTS],
        code: [EventCode::default(); MAX_EVENTS],
        mmcr: Mmcr::default(),
    };
    for (code, req) in assignment.code.iter_mut().zip(reqs) {
        *code = req.event_code();
    }
    let as_asked = reqs.iter().map(|r| Demands::new(cpu, r, r.event_code()));
    let demands = match all_together(as_asked) {
        Ok(demands) => demands,
        Err(why) => search::search(cpu, reqs, &mut assignment.code, why)?,
    };

    let mut taken = demands.named();
    let slots = assignment.pmc.iter_mut().zip(&assignment.code);
    for (pmc, code) in slots.take(reqs.len()) {
        // INVARIANT: demands that go together are at most four events on PMC1
        // to PMC4, so one of these is free for each event that names none.
        *pmc = match Pmc::from_number(code.pmc()) {
            Some(named) => named,
            None => lowest_free(taken).ok_or(Refusal::ProgrammableCountersFull)?,
        };
        taken |= pmc.bit();
    }
    assignment.mmcr = Mmcr::new(cpu, reqs, &assignment, machine);
    Ok(assignment)
}

/// The demands of a whole group, or what first stands in the way of it.
fn all_together(mut group: impl Iterator<Item = Demands>) -> Result<Demands, Refusal> {
    let all = group.try_fold(Demands::default(), |all, event| all.with(&event))?;
    all.complete()?;
    Ok(all)
}

/// The lowest programmable counter outside the set `taken`.
fn lowest_free(taken: u8) -> Option<Pmc> {
    let free = |pmc: &Pmc| pmc.is_programmable() && taken & pmc.bit() == 0;
    Pmc::ALL.into_iter().find(free)
}

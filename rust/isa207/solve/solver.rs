// SPDX-License-Identifier: GPL-2.0

//! Solves a group of events: codes, counters, register images.
//!
//! Codes stay as asked for whenever that works; else `search.rs` looks for alternatives. An event
//! whose code names a counter gets it; each other gets the lowest free one of PMC1 to PMC4, in
//! order. The same group always gets the same answer.

use super::{
    super::{
        codes::event_code::EventCode,
        models::model::CpuModel,
        pmc::{
            Pmc,
            COUNTERS, //
        },
        refusal::{
            Refusal,
            Selector, //
        },
        request::{
            Machine,
            Request, //
        }, //
    },
    assignment::Assignment,
    constraint::Constraints,
    mmcr::{
        self,
        Mmcr, //
    },
    search::search, //
};

impl CpuModel {
    /// Finds counters for all of `reqs` at the same time and computes the control registers'
    /// images.
    ///
    /// Validates each request as [`CpuModel::validate_event`] does. The same requests give the
    /// same answer every time. No requests at all is a group too: every counter is free. Takes
    /// bounded time: fewer than 20,000 instructions for six events with the most alternatives,
    /// 1,000 for one event.
    ///
    /// # Errors
    ///
    /// What is wrong with the first invalid event, or what first kept the events from counting
    /// together by the codes as asked for.
    pub fn solve(&self, reqs: &[Request], machine: Machine) -> Result<Assignment, Refusal> {
        self.solve_beside(&Constraints::default(), reqs, machine)
    }

    /// As [`CpuModel::solve`], for what is left of a group that was solved when some of its events
    /// are gone: it always counts on, although POWER9 would refuse it as a group of its own if the
    /// only event of units 6 to 9 on PMC4 is among those.
    pub fn solve_rest(&self, reqs: &[Request], machine: Machine) -> Result<Assignment, Refusal> {
        self.solve_beside(&Constraints::OF_ONE_THAT_LEFT, reqs, machine)
    }

    /// Solves `reqs` beside something with these constraints.
    fn solve_beside(
        &self,
        other: &Constraints,
        reqs: &[Request],
        machine: Machine,
    ) -> Result<Assignment, Refusal> {
        if reqs.len() > COUNTERS {
            return Err(Refusal::TooManyEvents);
        }
        for req in reqs {
            self.validate_event(req)?;
        }
        if machine.without_bhrb && reqs.iter().any(|req| req.branch_ifm().is_some()) {
            return Err(Refusal::NoBhrb);
        }
        // No choice of codes helps if the requests disagree apart from them.
        all_together(other, reqs.iter().map(Constraints::of_request))?;
        if machine.strict_branch_filters && mmcr::common_ifm(reqs).is_none() {
            return Err(Refusal::Conflict(Selector::BranchFilter));
        }

        let mut codes = [EventCode::default(); COUNTERS];
        for (code, req) in codes.iter_mut().zip(reqs) {
            *code = req.event_code();
        }
        let as_asked = reqs
            .iter()
            .map(|req| Constraints::new(self, req, req.event_code()));
        let constraints = match all_together(other, as_asked) {
            Ok(constraints) => constraints,
            Err(why) => search(self, other, reqs, &mut codes, why)?,
        };

        let mut pmcs = [Pmc::Pmc1; COUNTERS];
        let mut taken = constraints.named_pmcs();
        for ((pmc, code), _) in pmcs.iter_mut().zip(&codes).zip(reqs) {
            // INVARIANT: constraints that hold together are of at most four events on PMC1 to
            // PMC4, so one of these is free for each event that names none.
            *pmc = match Pmc::from_number(code.pmc()) {
                Some(named) => named,
                None => lowest_free(taken).ok_or(Refusal::ProgrammableCountersFull)?,
            };
            taken |= pmc.bit();
        }
        Ok(Assignment {
            len: reqs.len(),
            pmcs,
            codes,
            mmcr: Mmcr::new(self, machine, reqs, &pmcs, &codes),
        })
    }
}

/// The constraints of a whole group and of `other`, or what first keeps it from counting.
fn all_together(
    other: &Constraints,
    mut group: impl Iterator<Item = Constraints>,
) -> Result<Constraints, Refusal> {
    let all = group.try_fold(*other, |all, event| all.with(&event))?;
    all.check_group()?;
    Ok(all)
}

/// The lowest programmable counter outside the set `taken`.
fn lowest_free(taken: u8) -> Option<Pmc> {
    let free = |pmc: &Pmc| pmc.is_programmable() && taken & pmc.bit() == 0;
    Pmc::ALL.into_iter().find(free)
}

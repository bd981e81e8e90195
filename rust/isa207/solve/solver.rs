// SPDX-License-Identifier: GPL-2.0

//! Solves a group of events: codes, counters, register images.
//!
//! Keeps the requested codes if they can count together; otherwise `search.rs` looks for
//! alternatives. An event whose code names a counter gets that one; each other event gets the
//! lowest free one of PMC1 to PMC4, in order. The same group always gets the same answer.

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
    assignment::{
        Assignment,
        Pmcs,
        Solution, //
    },
    constraint::Constraints,
    demand::Demand,
    images::Images,
    search::search, //
};

impl CpuModel {
    /// Finds counters for all of `reqs` at the same time and computes the control registers'
    /// images.
    ///
    /// Validates each request with [`CpuModel::validate_event`]. The same requests always give the
    /// same answer. An empty group is valid, too: every counter is free. Takes bounded time: fewer
    /// than 20,000 instructions for six events with the most alternatives, 1,400 for one event.
    ///
    /// # Errors
    ///
    /// The refusal of the first invalid event, or the first reason why the events cannot count
    /// together with the requested codes.
    #[inline] // The driver does not call it: saves 1.8 KiB of the module.
    pub fn solve(&self, reqs: &[Request], platform: Platform) -> Result<Solution, Refusal> {
        let mut demands = [Demand::default(); COUNTERS];
        let mut codes = [EventCode::default(); COUNTERS];
        let used = demands.get_mut(..reqs.len());
        let used = used.ok_or(Refusal::TooManyEvents)?;
        for ((demand, code), req) in used.iter_mut().zip(&mut codes).zip(reqs) {
            *demand = self.demand(req, platform)?;
            *code = req.event_code();
        }
        match self.assign(used.iter().copied()) {
            Ok(assignment) => Ok(Solution {
                assignment,
                codes,
                demands,
            }),
            Err(why) => self.solve_with_alternatives(reqs, platform, why),
        }
    }

    /// Returns the demand of `req` with the requested code.
    ///
    /// # Errors
    ///
    /// The refusal of [`CpuModel::validate_event`], or [`Refusal::NoBhrb`] if the event needs a
    /// BHRB and there is none.
    #[inline]
    pub fn demand(&self, req: &Request, platform: Platform) -> Result<Demand, Refusal> {
        self.validate_event(req)?;
        if platform.without_bhrb && req.branch_ifm().is_some() {
            return Err(Refusal::NoBhrb);
        }
        Ok(Demand::new(self, platform, req, req.event_code()))
    }

    /// Assigns counters to events with these demands, if the requested codes can count together.
    /// Unlike [`CpuModel::solve`] it does not look for alternative codes.
    ///
    /// # Errors
    ///
    /// The reason why the events cannot count together with these codes.
    #[inline]
    pub fn assign(
        &self,
        demands: impl Iterator<Item = Demand> + Clone,
    ) -> Result<Assignment, Refusal> {
        let all = Demand::add_up(&mut demands.clone())?;
        self.place(demands, &all)
    }

    /// Makes the assignment of events that stay on the given counters after other events of their
    /// assignment were removed. On POWER9 they may not be a valid group by themselves, if the only
    /// event of units 6 to 9 on PMC4 was removed. The others of these units then count nothing.
    pub fn assign_remaining(&self, events: impl Iterator<Item = (Demand, Pmc)>) -> Assignment {
        let mut images = Images::default();
        let mut pmcs = Pmcs::default();
        for (index, (demand, pmc)) in (0..COUNTERS).zip(events) {
            pmcs.set(index, pmc);
            images.add(self, &demand, pmc);
        }
        self.assignment(pmcs, images)
    }

    /// Solves a group with alternative codes. [`Demand::check_compatible`] must have refused the
    /// group's demands, with the reason `why`.
    ///
    /// # Errors
    ///
    /// `why`, or a conflict that no choice of codes can resolve.
    pub fn solve_with_alternatives(
        &self,
        reqs: &[Request],
        platform: Platform,
        why: Refusal,
    ) -> Result<Solution, Refusal> {
        // No choice of codes helps if the requests disagree about something else.
        let mut needs = reqs
            .iter()
            .map(|req| Constraints::of_request(platform, req));
        needs.try_fold(Constraints::default(), |all, event| all.with(&event))?;
        let mut codes = [EventCode::default(); COUNTERS];
        let all = search(self, platform, reqs, &mut codes, why)?;
        let mut demands = [Demand::default(); COUNTERS];
        for ((demand, code), req) in demands.iter_mut().zip(&codes).zip(reqs) {
            *demand = Demand::new(self, platform, req, *code);
        }
        let chosen = demands.iter().take(reqs.len()).copied();
        let assignment = self.place(chosen, &all)?;
        Ok(Solution {
            assignment,
            codes,
            demands,
        })
    }

    /// Gives each of the events with these demands a counter. `all` is the sum of their
    /// constraints.
    #[inline]
    fn place(
        &self,
        demands: impl Iterator<Item = Demand>,
        all: &Constraints,
    ) -> Result<Assignment, Refusal> {
        let mut images = Images::default();
        let mut pmcs = Pmcs::default();
        let mut taken = all.named_pmcs();
        for (index, demand) in (0..COUNTERS).zip(demands) {
            // INVARIANT: Constraints that can be met together have at most four events on PMC1 to
            // PMC4, so each event that names no counter finds one of these. PMC5 and PMC6 add at
            // most two events.
            let pmc = match demand.named_pmc() {
                Some(named) => named,
                None => Pmc::lowest(!taken & Constraints::PROGRAMMABLE_PMCS)
                    .ok_or(Refusal::ProgrammableCountersFull)?,
            };
            taken |= pmc.bit();
            pmcs.set(index, pmc);
            images.add(self, &demand, pmc);
        }
        Ok(self.assignment(pmcs, images))
    }

    #[inline]
    fn assignment(&self, pmcs: Pmcs, images: Images) -> Assignment {
        Assignment {
            pmcs,
            frozen: images.frozen(),
            mmcr: images.finish(self),
        }
    }
}

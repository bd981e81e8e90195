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
        refusal::Refusal,
        request::{
            Machine,
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
    /// Validates each request as [`CpuModel::validate_event`] does. The same requests give the
    /// same answer every time. No requests at all is a group too: every counter is free. Takes
    /// bounded time: fewer than 20,000 instructions for six events with the most alternatives,
    /// 1,400 for one event.
    ///
    /// # Errors
    ///
    /// What is wrong with the first invalid event, or what first kept the events from counting
    /// together by the codes as asked for.
    #[inline] // The driver does not call it: saves 1.8 KiB of the module.
    pub fn solve(&self, reqs: &[Request], machine: Machine) -> Result<Solution, Refusal> {
        let mut demands = [Demand::default(); COUNTERS];
        let mut codes = [EventCode::default(); COUNTERS];
        let places = demands.get_mut(..reqs.len());
        let places = places.ok_or(Refusal::TooManyEvents)?;
        for ((demand, code), req) in places.iter_mut().zip(&mut codes).zip(reqs) {
            *demand = self.demand(req, machine)?;
            *code = req.event_code();
        }
        match self.assign(places.iter().copied()) {
            Ok(assignment) => Ok(Solution {
                assignment,
                codes,
                demands,
            }),
            Err(why) => self.solve_by_other_codes(reqs, machine, why),
        }
    }

    /// What `req` asks of the PMU, counted by the code asked for.
    ///
    /// # Errors
    ///
    /// What is wrong with the event itself, as [`CpuModel::validate_event`], or that there is no
    /// BHRB for it.
    #[inline]
    pub fn demand(&self, req: &Request, machine: Machine) -> Result<Demand, Refusal> {
        self.validate_event(req)?;
        if machine.without_bhrb && req.branch_ifm().is_some() {
            return Err(Refusal::NoBhrb);
        }
        Ok(Demand::new(self, machine, req, req.event_code()))
    }

    /// As [`CpuModel::solve`] for events that ask for `demands`, if the codes asked for go
    /// together.
    ///
    /// # Errors
    ///
    /// What keeps the events from counting together by these codes.
    #[inline]
    pub fn assign(
        &self,
        demands: impl Iterator<Item = Demand> + Clone,
    ) -> Result<Assignment, Refusal> {
        let all = Demand::all(&mut demands.clone())?;
        self.place(demands, &all)
    }

    /// Makes the assignment of events that an assignment placed on these counters together with
    /// others, which departed. On POWER9 they may not fit as a set of their own, if the only
    /// event of units 6 to 9 on PMC4 departed. Those of these units then count nothing.
    pub fn assign_rest(&self, events: impl Iterator<Item = (Demand, Pmc)>) -> Assignment {
        let mut images = Images::default();
        let mut pmcs = Pmcs::default();
        for (index, (demand, pmc)) in (0..COUNTERS).zip(events) {
            pmcs.set(index, pmc);
            images.add(self, &demand, pmc);
        }
        self.assignment(pmcs, images)
    }

    /// As [`CpuModel::solve`], for events whose demands are known not to go
    /// [together](Demand::together). `why` is what keeps them from it.
    ///
    /// # Errors
    ///
    /// `why`, or what keeps them apart whatever their codes.
    pub fn solve_by_other_codes(
        &self,
        reqs: &[Request],
        machine: Machine,
        why: Refusal,
    ) -> Result<Solution, Refusal> {
        // No choice of codes helps if the requests disagree apart from them.
        let mut needs = reqs.iter().map(|req| Constraints::of_request(machine, req));
        needs.try_fold(Constraints::default(), |all, event| all.with(&event))?;
        let mut codes = [EventCode::default(); COUNTERS];
        let all = search(self, machine, reqs, &mut codes, why)?;
        let mut demands = [Demand::default(); COUNTERS];
        for ((demand, code), req) in demands.iter_mut().zip(&codes).zip(reqs) {
            *demand = Demand::new(self, machine, req, *code);
        }
        let chosen = demands.iter().take(reqs.len()).copied();
        let assignment = self.place(chosen, &all)?;
        Ok(Solution {
            assignment,
            codes,
            demands,
        })
    }

    /// Gives each of the events with these demands a counter. `all` are their constraints.
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
            // INVARIANT: constraints that hold together are of at most four events on PMC1 to
            // PMC4, so one of these is free for each event that names none. Nor are there more
            // than two others.
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

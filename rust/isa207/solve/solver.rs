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
    mmcr::Images,
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
    pub fn solve(&self, reqs: &[Request], machine: Machine) -> Result<Solution, Refusal> {
        self.solve_beside(&Constraints::default(), reqs, machine)
    }

    /// As [`CpuModel::solve`], for what is left of a group that was solved when some of its events
    /// are gone: it always counts on, although POWER9 would refuse it as a group of its own if the
    /// only event of units 6 to 9 on PMC4 is among those.
    pub fn solve_rest(&self, reqs: &[Request], machine: Machine) -> Result<Solution, Refusal> {
        self.solve_beside(&Constraints::OF_ONE_THAT_LEFT, reqs, machine)
    }

    /// What `req` asks of the PMU, counted by the code asked for.
    ///
    /// # Errors
    ///
    /// What is wrong with the event itself, as [`CpuModel::validate_event`], or that there is no
    /// BHRB for it.
    #[inline(always)] // For who opens an event.
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
        let all = Demand::all(&Constraints::default(), demands.clone())?;
        self.place(demands, &all)
    }

    /// The assignment of events that ask for these demands and stay on these counters, each on one
    /// of its own, as others leave beside which [`CpuModel::assign`] placed them.
    #[inline]
    pub fn assign_placed(&self, events: impl Iterator<Item = (Demand, Pmc)> + Clone) -> Assignment {
        let mut images = Images::default();
        let mut pmcs = Pmcs::default();
        let mut simple = true;
        for (index, (demand, pmc)) in (0..COUNTERS).zip(events.clone()) {
            pmcs.set(index, pmc);
            images.add_simple(&demand, pmc);
            simple &= demand.is_simple();
        }
        if !simple {
            images = Images::default();
            for (demand, pmc) in events {
                images.add(self, &demand, pmc);
            }
        }
        Assignment {
            pmcs,
            frozen: images.frozen(),
            separable: images.are_separable(),
            mmcr: images.finish(self),
        }
    }

    /// Solves `reqs` beside something with these constraints.
    fn solve_beside(
        &self,
        other: &Constraints,
        reqs: &[Request],
        machine: Machine,
    ) -> Result<Solution, Refusal> {
        let mut demands = [Demand::default(); COUNTERS];
        let mut codes = [EventCode::default(); COUNTERS];
        let demands = demands
            .get_mut(..reqs.len())
            .ok_or(Refusal::TooManyEvents)?;
        for ((demand, code), req) in demands.iter_mut().zip(&mut codes).zip(reqs) {
            *demand = self.demand(req, machine)?;
            *code = req.event_code();
        }
        let all = match Demand::all(other, demands.iter().copied()) {
            Ok(all) => all,
            Err(why) => return self.search_beside(other, reqs, machine, why),
        };
        let assignment = self.place(demands.iter().copied(), &all)?;
        Ok(Solution { assignment, codes })
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
        self.search_beside(&Constraints::default(), reqs, machine, why)
    }

    /// Solves valid `reqs`, which cannot count together by the codes asked for, by others.
    fn search_beside(
        &self,
        other: &Constraints,
        reqs: &[Request],
        machine: Machine,
        why: Refusal,
    ) -> Result<Solution, Refusal> {
        // No choice of codes helps if the requests disagree apart from them.
        let mut needs = reqs.iter().map(|req| Constraints::of_request(machine, req));
        needs.try_fold(*other, |all, event| all.with(&event))?;
        let mut codes = [EventCode::default(); COUNTERS];
        let all = search(self, machine, other, reqs, &mut codes, why)?;
        let chosen = reqs.iter().zip(&codes);
        let demands = chosen.map(|(req, &code)| Demand::new(self, machine, req, code));
        let assignment = self.place(demands, &all)?;
        Ok(Solution { assignment, codes })
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
        Ok(Assignment {
            pmcs,
            frozen: images.frozen(),
            separable: images.are_separable(),
            mmcr: images.finish(self),
        })
    }
}

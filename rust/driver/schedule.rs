// SPDX-License-Identifier: GPL-2.0

//! Putting events on a CPU's PMU and taking them off, while it is stopped.
//!
//! perf core adds the events of a group in a transaction: they are only collected then, and checked
//! as a whole at its end. A transaction that is given up leaves no trace, as its events are deleted
//! again and the assignment of the others is worked out anew.

use super::{
    branch,
    count,
    open::Requests,
    Driver,
    Here, //
};
use crate::{
    isa207::{
        self,
        Assignment,
        COUNTERS, //
    },
    perf::{
        Event,
        ScheduleFlags,
        State, //
    },
    power::pmu, //
};
use core::cell::Cell;
use kernel::prelude::*;

/// The groups that were solved last on a CPU, one for each number of events: the events of a task
/// come and go all the time, and mostly the same ones.
#[derive(Default)]
pub(super) struct Solved {
    groups: [Cell<Option<(Requests, Assignment)>>; COUNTERS],
}

impl Solved {
    fn of_size(&self, requests: &Requests) -> Option<&Cell<Option<(Requests, Assignment)>>> {
        self.groups.get(requests.as_slice().len().checked_sub(1)?)
    }

    /// The answer for these events, if it is known.
    fn find(&self, requests: &Requests) -> Option<Assignment> {
        let (solved, assignment) = self.of_size(requests)?.get()?;
        (solved == *requests).then_some(assignment)
    }

    /// Remembers an answer.
    fn keep(&self, requests: Requests, assignment: Assignment) {
        if let Some(group) = self.of_size(&requests) {
            group.set(Some((requests, assignment)));
        }
    }
}

impl Driver {
    /// Where the CPU's events, and `more`, are to count.
    pub(super) fn assign(
        &self,
        here: &Here<'_>,
        more: Option<&Event>,
    ) -> Result<Assignment, isa207::Refusal> {
        let mut requests = Requests::new();
        for event in Iterator::chain(here.slots().iter(), more) {
            requests.push(event)?;
        }
        if let Some(assignment) = here.solved.find(&requests) {
            return Ok(assignment);
        }
        let assignment = self.model.solve(requests.as_slice(), self.machine)?;
        here.solved.keep(requests, assignment);
        Ok(assignment)
    }

    /// See [`crate::perf::Pmu::add`].
    pub(super) fn add_event(&self, here: &Here<'_>, event: &Event, flags: ScheduleFlags) -> Result {
        if here.slots().len() >= COUNTERS {
            return Err(EAGAIN);
        }
        // perf core of today adds in transactions only, but need not.
        let assignment = if here.in_transaction.get() {
            None
        } else {
            Some(self.assign(here, Some(event)).map_err(|_| EAGAIN)?)
        };
        here.assignment.set(assignment);
        here.changed.set(true);
        branch::begin(here, event);

        let state = if flags.start() {
            State::Running
        } else {
            State::Stopped
        };
        event.hw().set_state(here, state);
        Ok(())
    }

    /// See [`crate::perf::Pmu::del`].
    pub(super) fn delete_event(&self, here: &Here<'_>, event: &Event) {
        count::read(event);
        if let Some(index) = count::counter(event) {
            pmu::write_pmc(index, 0);
            event.hw().set_idx(here, 0);
        }
        event.update_userpage();
        here.assignment.set(None);
        here.changed.set(true);
    }

    /// See [`crate::perf::Pmu::commit_txn`].
    pub(super) fn commit(&self, here: &Here<'_>) -> Result {
        if here.in_transaction.get() {
            here.assignment
                .set(Some(self.assign(here, None).map_err(|_| EAGAIN)?));
            here.in_transaction.set(false);
        }
        Ok(())
    }
}

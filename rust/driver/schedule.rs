// SPDX-License-Identifier: GPL-2.0

//! Putting events on a CPU's PMU and taking them off, while it is stopped.
//!
//! perf core adds the events of a group in a transaction: they are only collected then, and checked
//! as a whole at its end. A transaction that is given up leaves no trace, as its events are deleted
//! again and the assignment of the others is worked out anew.

use super::count;
use super::open::Requests;
use super::Driver;
use super::Here;
use crate::isa207;
use crate::isa207::Assignment;
use crate::isa207::COUNTERS;
use crate::perf::Event;
use crate::perf::ScheduleFlags;
use crate::perf::State;
use crate::power::pmu;
use kernel::prelude::*;

impl Driver {
    /// Where the CPU's events, and `more`, are to count.
    pub(super) fn assign(
        &self,
        cpu: &Here<'_>,
        more: Option<&Event>,
    ) -> Result<Assignment, isa207::Refusal> {
        let mut requests = Requests::new();
        for event in Iterator::chain(cpu.slots().iter(), more) {
            requests.push(event)?;
        }
        self.cpu.solve(requests.as_slice(), self.machine)
    }

    /// See [`crate::perf::Pmu::add`].
    pub(super) fn add_event(&self, cpu: &Here<'_>, event: &Event, flags: ScheduleFlags) -> Result {
        if cpu.slots().len() >= COUNTERS {
            return Err(EAGAIN);
        }
        // perf core of today adds in transactions only, but need not.
        let assignment = if cpu.in_transaction.get() {
            None
        } else {
            Some(self.assign(cpu, Some(event)).map_err(|_| EAGAIN)?)
        };
        cpu.assignment.set(assignment);
        cpu.changed.set(true);

        let state = if flags.start() {
            State::Running
        } else {
            State::Stopped
        };
        event.hw().set_state(cpu, state);
        Ok(())
    }

    /// See [`crate::perf::Pmu::del`].
    pub(super) fn delete_event(&self, cpu: &Here<'_>, event: &Event) {
        count::read(event);
        if let Some(index) = count::counter(event) {
            pmu::write_pmc(index, 0);
            event.hw().set_idx(cpu, 0);
        }
        event.update_userpage();
        cpu.assignment.set(None);
        cpu.changed.set(true);
    }

    /// See [`crate::perf::Pmu::commit_txn`].
    pub(super) fn commit(&self, cpu: &Here<'_>) -> Result {
        if cpu.in_transaction.get() {
            cpu.assignment
                .set(Some(self.assign(cpu, None).map_err(|_| EAGAIN)?));
            cpu.in_transaction.set(false);
        }
        Ok(())
    }
}

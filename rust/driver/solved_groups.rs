// SPDX-License-Identifier: GPL-2.0

//! The groups of events that were solved last on a CPU.
//!
//! Each context switch puts the events of a task on the PMU or takes them off, and mostly they are
//! the same ones again. Then a comparison replaces the search for counters.

use super::requests::Requests;
use crate::isa207::{
    Assignment,
    COUNTERS, //
};
use core::cell::Cell;

/// The last group of each size, with its solution.
#[derive(Default)]
pub(super) struct SolvedGroups {
    by_size: [Cell<Option<(Requests, Assignment)>>; COUNTERS],
}

impl SolvedGroups {
    fn of_size(&self, requests: &Requests) -> Option<&Cell<Option<(Requests, Assignment)>>> {
        self.by_size.get(requests.as_slice().len().checked_sub(1)?)
    }

    /// The solution for these events, if they are the last group of their size.
    pub(super) fn find(&self, requests: &Requests) -> Option<Assignment> {
        let (solved, assignment) = self.of_size(requests)?.get()?;
        (solved == *requests).then_some(assignment)
    }

    /// Stores a solution, in place of that of the last group of the same size.
    pub(super) fn store(&self, requests: Requests, assignment: Assignment) {
        if let Some(group) = self.of_size(&requests) {
            group.set(Some((requests, assignment)));
        }
    }
}

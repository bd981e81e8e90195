// SPDX-License-Identifier: GPL-2.0

//! The groups of events that were solved last on a CPU.
//!
//! Each context switch puts the events of a task on the PMU or takes them off, and mostly they are
//! the same ones again. They are known by perf core's numbers of events, which no two events ever
//! share, and what an event asks for does not change once it is open.
//!
//! Each task that inherits a group has events of its own, with other numbers. If its group can
//! count only by other codes than those asked for, the search for them is known by what the events
//! ask for.

use super::requests::Requests;
use crate::{
    isa207::{
        Assignment,
        COUNTERS, //
    },
    perf::Event, //
};
use core::cell::Cell;

/// The groups that are kept of each size: those of a task and of another that it takes turns with.
const WAYS: usize = 2;

/// A group with its solution.
#[derive(Default)]
struct SolvedGroup {
    /// The events' numbers, in order. Unused ones are 0, which is no event's.
    ids: [Cell<u64>; COUNTERS],
    assignment: Cell<Option<Assignment>>,
}

/// The last groups of one size.
#[derive(Default)]
struct OfSize {
    groups: [SolvedGroup; WAYS],
    /// Which of them is replaced next.
    next: Cell<usize>,
    /// The last one for which other codes were searched.
    searched: Cell<Option<(Requests, Assignment)>>,
}

/// The last groups of each size.
#[derive(Default)]
pub(super) struct SolvedGroups {
    by_size: [OfSize; COUNTERS],
}

impl SolvedGroups {
    /// The groups of `len` events.
    #[inline]
    fn of_size(&self, len: usize) -> Option<&OfSize> {
        self.by_size.get(len.checked_sub(1)?)
    }

    /// The solution for these `len` events, if it is kept.
    #[inline]
    pub(super) fn find<'a>(
        &self,
        len: usize,
        events: impl Iterator<Item = &'a Event> + Clone,
    ) -> Option<&Cell<Option<Assignment>>> {
        let is_of = |group: &&SolvedGroup| {
            let mut ids = group.ids.iter().zip(events.clone());
            ids.all(|(id, event)| id.get() == event.id())
        };
        Some(&self.of_size(len)?.groups.iter().find(is_of)?.assignment)
    }

    /// Keeps the solution for these `len` events, in place of one of the same size.
    pub(super) fn store<'a>(
        &self,
        len: usize,
        events: impl Iterator<Item = &'a Event>,
        assignment: Assignment,
    ) {
        let Some(of_size) = self.of_size(len) else {
            return;
        };
        let next = of_size.next.get();
        of_size.next.set((next + 1) % WAYS);
        let Some(group) = of_size.groups.get(next) else {
            return;
        };
        for (id, event) in group.ids.iter().zip(events) {
            id.set(event.id());
        }
        group.assignment.set(Some(assignment));
    }

    /// The solution by other codes for these events, if it is kept.
    pub(super) fn find_searched(&self, requests: &Requests) -> Option<Assignment> {
        let of_size = self.of_size(requests.as_slice().len())?;
        let (searched, assignment) = of_size.searched.get()?;
        (searched.as_slice() == requests.as_slice()).then_some(assignment)
    }

    /// Keeps that solution, in place of the last one of the same size.
    pub(super) fn store_searched(&self, requests: Requests, assignment: Assignment) {
        if let Some(of_size) = self.of_size(requests.as_slice().len()) {
            of_size.searched.set(Some((requests, assignment)));
        }
    }
}

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

/// The sets of events that are kept of each size: those of a task and of another that it takes
/// turns with. Groups that share a CPU are a set after each transaction, with one more each time.
const WAYS: usize = 2;

/// A group with its solution.
#[derive(Default)]
struct SolvedGroup {
    /// The events' numbers, in order. Unused ones are 0, which is no event's.
    ids: [Cell<u64>; COUNTERS],
    assignment: Cell<Assignment>,
}

/// Where a solution is kept, until it is replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Solved(u8);

/// The last groups of each size.
#[derive(Default)]
pub(super) struct SolvedGroups {
    by_size: [[SolvedGroup; WAYS]; COUNTERS],
    /// Which of each size is replaced next.
    next: [Cell<u8>; COUNTERS],
    /// The last one of each size for which other codes were searched.
    searched: [Cell<Option<(Requests, Assignment)>>; COUNTERS],
}

impl SolvedGroups {
    /// The solution for these `len` events, if it is kept.
    #[inline]
    pub(super) fn find<'a>(
        &self,
        len: usize,
        events: impl Iterator<Item = &'a Event> + Clone,
    ) -> Option<Solved> {
        let size = len.checked_sub(1)?;
        let is_of = |group: &SolvedGroup| {
            let mut ids = group.ids.iter().zip(events.clone());
            ids.all(|(id, event)| id.get() == event.id())
        };
        let way = self.by_size.get(size)?.iter().position(is_of)?;
        // CAST: Small numbers.
        Some(Solved((size * WAYS + way) as u8))
    }

    /// A solution that [`SolvedGroups::find`] or [`SolvedGroups::store`] told of.
    #[inline]
    pub(super) fn get(&self, solved: Solved) -> Option<Assignment> {
        let (size, way) = (usize::from(solved.0) / WAYS, usize::from(solved.0) % WAYS);
        Some(self.by_size.get(size)?.get(way)?.assignment.get())
    }

    /// Keeps the solution for these `len` events, in place of one of the same size.
    pub(super) fn store<'a>(
        &self,
        len: usize,
        events: impl Iterator<Item = &'a Event>,
        assignment: Assignment,
    ) -> Option<Solved> {
        let size = len.checked_sub(1)?;
        let next = self.next.get(size)?;
        let way = usize::from(next.get());
        // CAST: Small numbers, as below.
        next.set(((way + 1) % WAYS) as u8);
        let group = self.by_size.get(size)?.get(way)?;
        for (id, event) in group.ids.iter().zip(events) {
            id.set(event.id());
        }
        group.assignment.set(assignment);
        Some(Solved((size * WAYS + way) as u8))
    }

    /// The solution by other codes for these events, if it is kept.
    pub(super) fn find_searched(&self, requests: &Requests) -> Option<Assignment> {
        let size = requests.as_slice().len().checked_sub(1)?;
        let (searched, assignment) = self.searched.get(size)?.get()?;
        (searched.as_slice() == requests.as_slice()).then_some(assignment)
    }

    /// Keeps that solution, in place of the last one of the same size.
    pub(super) fn store_searched(&self, requests: Requests, assignment: Assignment) {
        let size = requests.as_slice().len().wrapping_sub(1);
        if let Some(searched) = self.searched.get(size) {
            searched.set(Some((requests, assignment)));
        }
    }
}

// SPDX-License-Identifier: GPL-2.0

//! The groups of events that were solved last on a CPU.
//!
//! Each context switch puts the events of a task on the PMU or takes them off, and mostly they are
//! the same ones again. They are known by perf core's numbers of events, which no two events ever
//! share, and what an event asks for does not change once it is open.

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

/// The last groups of each size.
#[derive(Default)]
pub(super) struct SolvedGroups {
    by_size: [[SolvedGroup; WAYS]; COUNTERS],
    /// Which of a size is replaced next.
    next: Cell<usize>,
}

impl SolvedGroups {
    /// The groups of as many events, with the number of events.
    #[inline]
    fn of_size(&self, len: usize) -> Option<&[SolvedGroup; WAYS]> {
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
        Some(&self.of_size(len)?.iter().find(is_of)?.assignment)
    }

    /// Keeps the solution for these `len` events, in place of one of the same size.
    pub(super) fn store<'a>(
        &self,
        len: usize,
        events: impl Iterator<Item = &'a Event>,
        assignment: Assignment,
    ) {
        let next = self.next.get();
        self.next.set((next + 1) % WAYS);
        let Some(group) = self.of_size(len).and_then(|groups| groups.get(next)) else {
            return;
        };
        for (id, event) in group.ids.iter().zip(events) {
            id.set(event.id());
        }
        group.assignment.set(Some(assignment));
    }
}

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
use core::{
    cell::Cell,
    num::NonZeroU8, //
};

/// The groups that are kept in a set: that of a task and of another that it takes turns with.
const WAYS: usize = 2;

/// The sets for each number of events, by what group it is. So more tasks than two do not replace
/// each other's groups, but for some. (Groups that share a CPU are a group after each transaction,
/// of one more event each time.)
const SETS: usize = 4;

/// A group with its solution.
#[derive(Default)]
struct SolvedGroup {
    /// The events' numbers, in order. Unused ones are 0, which is no event's.
    ids: [Cell<u64>; COUNTERS],
    assignment: Cell<Assignment>,
    /// By the codes asked for, so that it depends on the events' demands alone.
    as_asked: Cell<bool>,
}

/// Where a solution is kept, until it is replaced: its place, counted from 1.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Solved(NonZeroU8);

impl Solved {
    #[inline]
    fn at(place: usize) -> Option<Self> {
        // CAST: A small number.
        NonZeroU8::new((place + 1) as u8).map(Self)
    }

    #[inline]
    fn place(self) -> usize {
        usize::from(self.0.get()) - 1
    }
}

/// The last groups.
#[derive(Default)]
pub(super) struct SolvedGroups {
    by_size: [[[SolvedGroup; WAYS]; SETS]; COUNTERS],
    /// Which of each set is replaced next.
    next: [[Cell<u8>; SETS]; COUNTERS],
    /// The last one of each size for which other codes were searched.
    searched: [Cell<Option<(Requests, Assignment)>>; COUNTERS],
}

/// The set in which a group of `len` events is kept of which the first is `first`; `None` if there
/// are no events.
#[inline]
fn set_of(len: usize, first: &Event) -> Option<usize> {
    // Numbers are given in turn, often some of them to each task.
    let id = first.id();
    // CAST: Any bits of it do.
    let set = (id ^ id >> 2) as usize % SETS;
    Some(len.checked_sub(1)? * SETS + set)
}

impl SolvedGroups {
    /// All places.
    #[inline]
    fn groups(&self) -> &[SolvedGroup] {
        self.by_size.as_flattened().as_flattened()
    }

    /// The solution for these `len` events, if it is kept.
    #[inline]
    pub(super) fn find<'a>(
        &self,
        len: usize,
        events: impl Iterator<Item = &'a Event> + Clone,
    ) -> Option<Solved> {
        let mut rest = events;
        let first = rest.next()?;
        let start = set_of(len, first)? * WAYS;
        let is_of = |group: &SolvedGroup| {
            let [id, ids @ ..] = &group.ids;
            let mut ids = ids.iter().zip(rest.clone());
            id.get() == first.id() && ids.all(|(id, event)| id.get() == event.id())
        };
        let ways = self.groups().get(start..start + WAYS)?;
        Solved::at(start + ways.iter().position(is_of)?)
    }

    /// A solution that [`SolvedGroups::find`] or [`SolvedGroups::store`] told of.
    #[inline]
    pub(super) fn get(&self, solved: Solved) -> Option<Assignment> {
        Some(self.groups().get(solved.place())?.assignment.get())
    }

    /// Whether that solution is by the codes asked for.
    #[inline]
    pub(super) fn is_as_asked(&self, solved: Solved) -> bool {
        let group = self.groups().get(solved.place());
        group.is_some_and(|group| group.as_asked.get())
    }

    /// Keeps the solution for these `len` events, in place of another one. `as_asked`: it is by the
    /// codes asked for.
    #[inline]
    pub(super) fn store<'a>(
        &self,
        len: usize,
        events: impl Iterator<Item = &'a Event> + Clone,
        assignment: Assignment,
        as_asked: bool,
    ) -> Option<Solved> {
        let set = set_of(len, events.clone().next()?)?;
        let next = self.next.as_flattened().get(set)?;
        let place = set * WAYS + usize::from(next.get());
        // CAST: Small numbers.
        next.set(((usize::from(next.get()) + 1) % WAYS) as u8);
        let group = self.groups().get(place)?;
        for (id, event) in group.ids.iter().zip(events) {
            id.set(event.id());
        }
        group.assignment.set(assignment);
        group.as_asked.set(as_asked);
        Solved::at(place)
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

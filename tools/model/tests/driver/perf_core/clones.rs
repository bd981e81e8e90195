// SPDX-License-Identifier: GPL-2.0

//! Tasks whose contexts are clones: one inherited all events of the other, or both inherited all of a
//! third one, and no event of either was opened or closed since.
//!
//! At a switch between such tasks perf core swaps their contexts. The events remain on the PMU, and
//! follow the other task from then on. Between disabling and enabling the PMU perf core calls the
//! driver's `sched_task`, once for each of the two tasks.
//!
//! EBB events are never in such a context. The driver refuses `attr.inherit` for them, so a child
//! is no clone if its parent has an EBB event, and a task stops being a clone when an EBB event is
//! opened for it.
//!
//! `PERF_SAMPLE_READ` and signals, for which perf core swaps no contexts, do not occur here.

use super::{Context, Event, PerfCore, sched::call};
use crate::{machine::ensure, perf_bindings::perf_event_attr};
use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, Ordering},
};

/// Identity of a context, and the state of the context that it is a clone of.
#[derive(Clone, Copy)]
pub struct Lineage {
    id: u64,
    generation: u64,
    /// The number and the generation of the parent.
    parent: Option<(u64, u64)>,
}

impl Default for Lineage {
    fn default() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self {
            id: LAST.fetch_add(1, Ordering::Relaxed),
            generation: 0,
            parent: None,
        }
    }
}

impl Lineage {
    fn is_parent_of(self, other: Self) -> bool {
        other.parent == Some((self.id, self.generation))
    }

    /// Returns whether one is a clone of the other, or both of a third (`context_equiv()`).
    fn is_equivalent(self, other: Self) -> bool {
        let are_siblings = self.parent.is_some() && self.parent == other.parent;
        self.is_parent_of(other) || other.is_parent_of(self) || are_siblings
    }
}

/// Contexts and counts that a switch has swapped.
#[derive(Default)]
pub struct Swap {
    /// Whether the contexts of the two tasks were swapped.
    pub is_done: bool,
    /// Numbers of events whose counts were exchanged, so that each remains with its task
    /// (`attr.inherit_stat`).
    pub counts: Vec<(usize, usize)>,
}

impl Context {
    /// Records that an event was added.
    pub(super) fn change(&self) {
        let mut lineage = self.lineage.get();
        lineage.generation += 1;
        self.lineage.set(lineage);
    }

    /// Ends the clone relation of the context (`unclone_ctx()`).
    ///
    /// perf core closes an event together with all that were inherited from it. A history closes
    /// them one after another, so here a context stops being a clone when it loses an event.
    pub(super) fn unclone(&self) {
        self.change();
        self.lineage.set(Lineage {
            parent: None,
            ..self.lineage.get()
        });
    }

    /// Records that the context has inherited all events of its parent
    /// (`perf_event_init_context()`).
    pub(super) fn become_clone_of(&self, parent: &Self) {
        let of_parent = parent.lineage.get();
        let own = (of_parent.id, of_parent.generation);
        self.lineage.set(Lineage {
            parent: of_parent.parent.or(Some(own)),
            ..self.lineage.get()
        });
    }

    fn swap(&self, other: &Self) {
        self.events.swap(&other.events);
        self.is_active.swap(&other.is_active);
        self.lineage.swap(&other.lineage);
        self.raw.swap(&other.raw);
    }
}

impl Event {
    /// Returns whether the event keeps its count with its task when contexts are swapped
    /// (`attr.inherit_stat`).
    pub fn keeps_count(&self) -> bool {
        self.flag(perf_event_attr::inherit_stat_raw)
    }

    /// Returns the number of the event that the program opened.
    fn origin(&self) -> usize {
        self.parent.as_ref().map_or(self.id, |parent| parent.id)
    }

    /// Returns the number of occurrences since the last update of the count.
    fn since_update(&self) -> u64 {
        match self.idx().checked_sub(1).filter(|_| self.counter_runs()) {
            Some(index) => {
                let number = pmu_model::spr::PMC1 + index as u32;
                let counter = crate::machine::with_cpu(|cpu| cpu.facility.mfspr(number) as u32);
                counter.wrapping_sub(self.prev_count()).into()
            }
            None => 0,
        }
    }
}

impl PerfCore {
    /// Returns whether a switch between two tasks swaps their contexts.
    pub fn are_clones(&self, task: usize, other: usize) -> bool {
        let [one, other] = [task, other].map(|task| self.task(task).ctx.lineage.get());
        one.is_equivalent(other)
    }

    /// Switches the CPU from a task to a clone of it (the fast path of
    /// `perf_event_context_sched_out()`).
    pub(super) fn swap_contexts(&self, prev: usize, next: usize) -> Swap {
        let tasks = [prev, next].map(|task| self.task(task));
        self.perf_pmu_disable();
        self.perf_ctx_sched_task_cb(prev, false);
        self.perf_pmu_enable();
        tasks[0].ctx.swap(&tasks[1].ctx);
        let on_cpu = &self.cpu().task;
        if on_cpu.get() == Some(prev) {
            on_cpu.set(Some(next));
        }
        for (number, before) in [(prev, next), (next, prev)] {
            for event in self.task(number).ctx.events.borrow().iter() {
                ensure(event.attr().config >> 63 == 0, || {
                    format!("event {} has EBBs and was inherited", event.id)
                });
                event.task.set(Some(number));
                event.followed.borrow_mut().push(before);
            }
        }
        Swap {
            is_done: true,
            counts: self.perf_event_sync_stat(&tasks[1].ctx, &tasks[0].ctx),
        }
    }

    /// Exchanges the counts of events in the two contexts that request it. The events of `ctx` may
    /// be on this CPU.
    ///
    /// perf core walks both contexts' lists in parallel, although their order differs if the parent
    /// opened pinned events after others. Here the two events of an exchange are inherited from the
    /// same one.
    fn perf_event_sync_stat(&self, ctx: &Context, other: &Context) -> Vec<(usize, usize)> {
        if !ctx.events.borrow().iter().any(|event| event.keeps_count()) {
            return Vec::new();
        }
        let mut exchanged = Vec::new();
        let others = other.events.borrow();
        for event in ctx
            .events
            .borrow()
            .iter()
            .filter(|event| event.keeps_count())
        {
            let mut likes = others
                .iter()
                .filter(|other| other.origin() == event.origin());
            let Some(other) = likes.next() else {
                continue;
            };
            if event.is_active() {
                call!(self.pmu(), read(event.raw()));
            }
            // SAFETY: Both structures are alive.
            unsafe { std::mem::swap(&mut (*event.raw()).count, &mut (*other.raw()).count) };
            // The counter has counted in the kernel since, which the next update adds to the new
            // count.
            let since = event.since_update();
            exchange(&event.in_kernel, &other.in_kernel, since);
            exchanged.push((event.id, other.id));
        }
        exchanged
    }
}

/// Exchanges two counts, except that the first one keeps its last `since` occurrences.
fn exchange(one: &Cell<u64>, other: &Cell<u64>, since: u64) {
    one.swap(other);
    one.set(one.get() + since);
    other.set(other.get() - since);
}

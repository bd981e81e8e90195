// SPDX-License-Identifier: GPL-2.0

//! Counts of situations that few steps of a history lead to. Random histories fail if they reach
//! one too rarely, because they would not test it.

use super::*;
use std::cell::RefCell;

/// Situation that a history may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// The EBB group on the PMU is not the last one of its task that was, and the last one is still
    /// open.
    Turn,
    /// A case of `Turn` in which the group had also been on a PMU before the other one.
    Return,
    /// An EBB group that is bound to a CPU is on its PMU, and its task ran on another CPU before.
    Bound,
    /// A case of `Bound` in which an EBB group of the task used the PMU of that other CPU.
    BoundBeside,
    /// An event of a task that is bound to a CPU, and is not an EBB event, is on its PMU, and the
    /// task ran on another CPU before.
    BoundEvents,
    /// Contexts with events on the PMU are swapped.
    Swap,
    /// A case of `Swap` in which an event has a branch stack.
    SwapStack,
    /// A case of `Swap` in which an event keeps its count with its task.
    SwapCounts,
    /// The partition is suspended while a program with an EBB group runs.
    SuspendGroup,
    /// The partition is suspended while other events of a task are on a PMU.
    SuspendEvents,
}

impl Reached {
    /// All situations.
    pub const ALL: [Self; 10] = [
        Self::Turn,
        Self::Return,
        Self::Bound,
        Self::BoundBeside,
        Self::BoundEvents,
        Self::Swap,
        Self::SwapStack,
        Self::SwapCounts,
        Self::SuspendGroup,
        Self::SuspendEvents,
    ];
}

thread_local! {
    static COUNTS: RefCell<HashMap<u8, u64>> = RefCell::default();
}

fn count(reached: Reached) {
    COUNTS.with_borrow_mut(|counts| *counts.entry(reached as u8).or_default() += 1);
}

/// Returns how often this thread's histories have reached each situation since the last call.
pub fn take() -> Vec<(Reached, u64)> {
    let counts = COUNTS.take();
    let of = |reached: Reached| counts.get(&(reached as u8)).copied().unwrap_or(0);
    Reached::ALL.map(|reached| (reached, of(reached))).to_vec()
}

/// The part of a history's past that the counts depend on.
#[derive(Default)]
pub(super) struct Reach {
    /// The leader of the last EBB group of each task.
    last: HashMap<usize, usize>,
    /// The leaders of EBB groups that were on a PMU.
    seen: HashSet<usize>,
    /// Events that are bound to a CPU and whose task has run on another one since. The value is
    /// whether an EBB group was on the PMU there.
    away: HashMap<usize, bool>,
}

impl World {
    /// Counts situations as a task runs on a CPU, from its EBB group there and the events bound to
    /// it.
    pub(super) fn count_group(&mut self, cpu: usize, task: usize) {
        let group = self.active(cpu, true);
        let leader = group.first().map(|event| event.leader().id);
        if let Some(leader) = leader {
            let before = self.reach.last.insert(task, leader);
            let is_open = |id: usize| self.open.iter().any(|event| event.id == id);
            let is_new = self.reach.seen.insert(leader);
            if before.is_some_and(|before| before != leader && is_open(before)) {
                count(Reached::Turn);
                if !is_new {
                    count(Reached::Return);
                }
            }
        }
        let of_task = |event: &&Rc<Event>| event.task.get() == Some(task);
        for event in self.open.iter().filter(of_task) {
            let Some(bound) = event.cpu else {
                continue;
            };
            if bound != cpu {
                let beside = self.reach.away.entry(event.id).or_default();
                *beside |= leader.is_some();
            } else if event.oncpu.get() == Some(cpu)
                && let Some(beside) = self.reach.away.remove(&event.id)
            {
                match is_ebb(event) {
                    true if beside => count(Reached::BoundBeside),
                    true => count(Reached::Bound),
                    false => count(Reached::BoundEvents),
                }
            }
        }
    }

    /// Counts a swap of contexts with events on the PMU, if a switch to another task does one.
    pub(super) fn count_swap(&self, cpu: usize, next: Option<usize>) {
        let (Some(task), Some(next)) = (self.core.running[cpu].get(), next) else {
            return;
        };
        if task == next || !self.core.are_clones(task, next) {
            return;
        }
        let events = self.active(cpu, false);
        let of_task = |event: &&Rc<Event>| event.task.get() == Some(task);
        let swapped: Vec<_> = events.iter().filter(of_task).collect();
        let stack = perf_event_sample_format_PERF_SAMPLE_BRANCH_STACK;
        let any = |is_so: &dyn Fn(&Event) -> bool| swapped.iter().any(|event| is_so(event));
        for (is_so, reached) in [
            (!swapped.is_empty(), Reached::Swap),
            (any(&|event| event.samples_with(stack)), Reached::SwapStack),
            (any(&Event::keeps_count), Reached::SwapCounts),
        ] {
            if is_so {
                count(reached);
            }
        }
    }

    /// Counts situations as the partition is suspended with the task of a CPU on its PMU.
    pub(super) fn count_suspend(&self, cpu: usize) {
        let ebb = |ebb| self.active(cpu, ebb);
        if !ebb(true).is_empty() {
            count(Reached::SuspendGroup);
        }
        if ebb(false).iter().any(|event| event.task.get().is_some()) {
            count(Reached::SuspendEvents);
        }
    }
}

// SPDX-License-Identifier: GPL-2.0

//! Tasks whose contexts are clones: perf core swaps their contexts at a switch, and the events
//! remain on the PMU.

use super::{
    directed::{CYCLES, in_each, run},
    *,
};

impl World {
    /// Switches a CPU to a task with a clone of its task's context, or forks one.
    pub(super) fn clone_task(&mut self, cpu: usize, wish: Wish) {
        let Some(task) = self.core.running[cpu].get() else {
            return;
        };
        let is_clone = |other: &usize| !self.runs(*other) && self.core.are_clones(task, *other);
        let clones: Vec<_> = self.live.iter().copied().filter(is_clone).collect();
        match clones.get(usize::from(wish.code) % clones.len().max(1)) {
            Some(next) => self.switch_to(cpu, Some(*next)),
            None => self.fork_clone(cpu, task, wish),
        }
    }

    /// Returns whether a task runs on a CPU.
    fn runs(&self, task: usize) -> bool {
        let mut running = self.core.running.iter();
        running.any(|cpu| cpu.get() == Some(task))
    }

    /// Forks a child of the task on a CPU that inherits all of its events.
    fn fork_clone(&mut self, cpu: usize, parent: usize, wish: Wish) {
        if self.live.len() >= MOST_TASKS {
            // There is no room for another task, so an idle one is killed.
            let idle = self.live.iter().find(|task| !self.runs(**task));
            let Some(victim) = idle.copied() else {
                return;
            };
            self.switch_to(cpu, Some(victim));
            self.exit(cpu);
            self.switch_to(cpu, Some(parent));
        }
        let is_inherited = |event: &Rc<Event>| event.leader().is_inherited();
        let of_parent = |event: &Rc<Event>| event.task.get() == Some(parent);
        let others = |event: &Rc<Event>| of_parent(event) && !is_inherited(event);
        self.close_those(others);
        self.make_room(parent);
        if !self.open.iter().any(of_parent) {
            let number = self.live.iter().position(|task| *task == parent);
            let inherited = wish!(wish, inherit: true, member: false, of_cpu: false);
            self.open(number.unwrap_or(0) as u8, inherited);
            self.make_room(parent);
        }
        self.fork(cpu);
    }

    /// Closes the events for which `is_closed` is true.
    fn close_those(&mut self, is_closed: impl Fn(&Rc<Event>) -> bool) {
        let closed = self.open.extract_if(.., |event| is_closed(event));
        closed.for_each(|event| self.core.close(&event));
    }

    /// Closes the oldest event of another task if the limit of open events is reached.
    pub(super) fn make_room(&mut self, task: usize) {
        if self.open.len() < MOST_EVENTS {
            return;
        }
        let mut others = self.open.iter();
        if let Some(at) = others.position(|event| event.task.get() != Some(task)) {
            let oldest = self.open.remove(at);
            self.core.close(&oldest);
        }
    }

    /// Lets the task on a CPU exit, unless only the first tasks remain.
    pub(super) fn exit(&mut self, cpu: usize) {
        let Some(task) = self.core.running[cpu].get() else {
            return;
        };
        if self.live.len() <= TASKS {
            return;
        }
        self.core.exit(cpu);
        self.forget_branches(cpu);
        self.open.retain(|event| event.task.get() != Some(task));
        self.others.retain(|event| event.task.get() != Some(task));
        self.programs.remove(&task);
        self.live.retain(|other| *other != task);
    }
}

/// An event of task 0 that its child inherits.
const INHERITED: Wish = wish!(CYCLES, inherit: true, addr: false, registers: false);

/// The number of the first child.
const CHILD: u8 = TASKS as u8;

#[test]
fn a_branch_stack_has_branches_of_the_task_whose_context_was_swapped_in() {
    let wish = wish!(INHERITED, period: 20, branches: 1);
    // The child runs when the sample is taken, and the BHRB has room for the branches of both.
    let history = [
        Op::Switch(0, 0),
        Op::Open(0, wish),
        Op::Fork(0),
        Op::Run(0, 8, 1, 1),
        Op::Switch(0, CHILD),
        Op::Run(0, 16, 1, 1),
    ];
    run(&history, |world, _| {
        let samples = world.open.iter().map(|event| event.samples.borrow().len());
        assert_eq!(samples.collect::<Vec<_>>(), [1, 0]);
    });
}

#[test]
fn an_event_counts_for_the_task_whose_context_was_swapped_in() {
    for (inherit_stat, expected) in [(false, [12, 0]), (true, [7, 5])] {
        let wish = wish!(INHERITED, period: 0, inherit_stat);
        // The child gets the context of its parent, whose event remains on the PMU.
        let history = [
            Op::Switch(0, 0),
            Op::Open(0, wish),
            Op::Fork(0),
            Op::Run(0, 5, 1, 3),
            Op::Switch(0, CHILD),
            Op::Run(0, 7, 1, 3),
            Op::Read(0),
        ];
        run(&history, |world, _| {
            let counts = world.open.iter().map(|event| event.count());
            assert_eq!(counts.collect::<Vec<_>>(), expected);
            assert_eq!(world.open[0].oncpu.get(), Some(0));
        });
    }
}

#[test]
fn no_ebb_event_is_in_a_context_that_may_be_swapped() {
    in_each(Kind::partition, |world, _| {
        let core = world.core.clone();
        let attr = |inherit| {
            let mut attr = World::attr(CODES[3].0 | EBB, 0);
            attr.set_exclude_kernel(1);
            attr.set_exclude_hv(1);
            attr.set_pinned(1);
            attr.set_exclusive(1);
            attr.set_inherit(inherit);
            attr
        };
        let refused = core.open(attr(1), (Some(0), None), None, None);
        assert_eq!(refused.err(), Some(-22));
        // Because one event is not inherited, the child is no clone, although it inherits others.
        world.step(&Op::Switch(0, 0));
        world.step(&Op::Open(0, INHERITED));
        world.step(&Op::Fork(0));
        assert!(core.are_clones(0, TASKS));
        world.add(attr(0), (Some(0), None), None);
        assert!(!core.are_clones(0, TASKS));
        world.step(&Op::Fork(0));
        assert!(!core.are_clones(0, TASKS + 1));
    });
}

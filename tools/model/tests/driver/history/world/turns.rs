// SPDX-License-Identifier: GPL-2.0

//! EBB groups of a task that take turns on the PMU: the program disables one and enables another,
//! or moves to a CPU to which another one is bound.

use super::{
    directed::{NOBODY, run},
    *,
};

impl World {
    /// Returns the leaders of a task's EBB groups.
    fn ebb_leaders(&self, task: usize) -> Vec<Rc<Event>> {
        let leads = |event: &&Rc<Event>| {
            is_ebb(event) && event.is_leader() && event.task.get() == Some(task)
        };
        self.open.iter().filter(leads).cloned().collect()
    }

    /// Opens another EBB group of a task, on any CPU or on one only.
    fn open_group(&mut self, task: usize, code: u8) {
        self.make_room(task);
        let bound = (code & 1 != 0).then(|| self.cpu(code >> 1));
        let mut codes = CODES[..EBB_CODES].iter().map(|(code, _)| *code);
        let possible = codes
            .by_ref()
            .skip(usize::from(code) % EBB_CODES)
            .find(|code| !events::cannot_count(code | EBB));
        if let Some(event) = possible {
            self.open_ebb((task, bound), event, code, None);
        }
    }

    /// Disables the EBB group of a CPU's program there and enables its next one. If fewer than two
    /// may run there, and sometimes if two may, it opens a group instead.
    pub(super) fn turn(&mut self, cpu: usize, code: u8) {
        let Some(task) = self.core.running[cpu].get() else {
            return;
        };
        let may_run = |leader: &Rc<Event>| leader.cpu.is_none_or(|bound| bound == cpu);
        let mut leaders = self.ebb_leaders(task);
        leaders.retain(may_run);
        if leaders.len() < 2 || leaders.len() == 2 && code.is_multiple_of(16) {
            return self.open_group(task, code);
        }
        let is_here = |leader: &Rc<Event>| leader.oncpu.get() == Some(cpu);
        let before = leaders.iter().position(is_here);
        let next = before.map_or(0, |before| before + 1) % leaders.len();
        if let Some(leader) = before.and_then(|before| leaders.get(before)) {
            self.core.disable(leader);
        }
        self.core.enable(&leaders[next]);
    }

    /// Moves the task of a CPU, which is in the kernel, to another CPU, perhaps to one to which an
    /// EBB group of the task is bound.
    pub(super) fn migrate(&mut self, from: usize, number: u8) {
        let Some(task) = self.core.running[from].get() else {
            return;
        };
        let groups = self.ebb_leaders(task);
        let mut bound = groups.iter().filter_map(|leader| leader.cpu);
        let bound = bound.find(|bound| *bound != from && self.core.online[*bound].get());
        let to = bound.filter(|_| number & 1 != 0);
        let to = to.unwrap_or_else(|| self.cpu(number >> 1));
        if from == to {
            return;
        }
        self.switch_to(from, None);
        self.core.enter_kernel(to);
        self.let_interrupts_through(to);
        self.switch_to(to, Some(task));
        self.core.leave_kernel(to);
        self.core.run_on(from);
    }
}

/// Returns the value of PMC6 of a CPU.
fn pmc6(cpu: usize) -> u64 {
    with_machine(|machine| machine.cpus[cpu].facility.mfspr(spr::PMC6))
}

#[test]
fn groups_that_ask_for_the_same_keep_their_counters_as_they_take_turns() {
    // Both groups count on PMC6, and the control registers are the same. Each turn runs 5 cycles.
    let (first, other) = (0, 1);
    let mut history = vec![
        Op::Switch(0, 0),
        Op::OpenEbb(0, 3),
        Op::OpenEbbGroup(0, 3, None),
        Op::User(0, UserWrite::Counter(5, 1000)),
    ];
    for _ in 0..3 {
        for (disabled, enabled) in [(first, other), (other, first)] {
            history.extend([Op::Disable(disabled), Op::Enable(enabled)]);
            history.push(Op::Run(0, 5, 1, 3));
        }
    }
    run(&history, |_, _| assert_eq!(pmc6(0), NEGATIVE - 1000 + 15));
    history.extend([Op::Disable(first), Op::Enable(other)]);
    run(&history, |_, _| assert_eq!(pmc6(0), 15));
}

#[test]
fn a_group_of_a_cpu_counts_on_after_a_group_of_another_cpu_has_run() {
    // The alert of the second group belongs to the program, and waits for PME. With the first
    // group, whose counter is unchanged, the program finds the alert, too.
    let mut history = vec![
        Op::Switch(0, 0),
        Op::OpenEbbGroup(0, 3, Some(0)),
        Op::OpenEbbGroup(0, 3, Some(1)),
        Op::User(0, UserWrite::Bescr(0b01)),
        Op::User(0, UserWrite::Counter(5, 1000)),
        Op::Run(0, 5, 1, 3),
        Op::Switch(0, NOBODY),
        Op::Switch(1, 0),
        Op::User(1, UserWrite::Counter(5, 4)),
        Op::Run(1, 8, 1, 3),
        Op::Switch(1, NOBODY),
        Op::Switch(0, 0),
    ];
    run(&history, |_, facility| {
        assert_eq!(pmc6(0), NEGATIVE - 1000 + 5);
        assert_ne!(facility.mfspr(spr::MMCR0) & mmcr0::PMAO, 0, "no alert");
    });
    history.push(Op::User(0, UserWrite::Bescr(0b11)));
    run(&history, |_, facility| {
        assert_eq!(facility.mfspr(spr::BESCR), bescr::PMEO, "no EBB");
    });
}

#[test]
fn a_group_with_a_negative_counter_raises_an_alert_if_its_program_has_enabled_alerts() {
    // The program enables alerts while its second group is on the PMU.
    let history = [
        Op::Switch(0, 0),
        Op::OpenEbb(0, 3),
        Op::OpenEbbGroup(0, 3, None),
        Op::User(0, UserWrite::Mmcr0(0)),
        Op::User(0, UserWrite::Counter(5, 4)),
        Op::Run(0, 8, 1, 3),
        Op::Disable(0),
        Op::Enable(1),
        Op::User(0, UserWrite::Bescr(0b11)),
        Op::User(0, UserWrite::Mmcr0(0b010)),
        Op::Disable(1),
        Op::Enable(0),
    ];
    run(&history, |_, facility| {
        let gets = !facility.processor().misses_negative_at_enable();
        let expected = if gets {
            bescr::PMEO
        } else {
            bescr::GE | bescr::PME
        };
        assert_eq!(facility.mfspr(spr::BESCR), expected);
    });
}

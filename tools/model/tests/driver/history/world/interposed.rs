// SPDX-License-Identifier: GPL-2.0

//! Histories with the driver interposed: the module is removed and inserted under the events of the
//! built-in driver.

use super::{directed::NOBODY, *};
use crate::history::MACHINE;
use std::sync::PoisonError;

impl World {
    /// Removes the module and inserts it again, beside the built-in driver. First it closes the EBB
    /// events, which hold references to the module.
    pub(super) fn reload(&mut self) {
        if !self.core.has_built_in() {
            return;
        }
        for event in std::mem::take(&mut self.open) {
            self.core.close(&event);
        }
        let entered = with_machine(|machine| machine.current);
        let online = (0..CPUS as usize).filter(|cpu| self.core.online[*cpu].get());
        // The thread that stops a CPU runs there, so no task does.
        let stopped: Vec<_> = online
            .map(|cpu| (cpu, self.core.running[cpu].get()))
            .collect();
        for &(cpu, _) in &stopped {
            if cpu != entered {
                self.core.enter_kernel(cpu);
                self.let_interrupts_through(cpu);
            }
            self.core.switch(cpu, None);
        }
        self.core.run_on(entered);
        self.unload();
        self.module = Some(Module::load(true));
        for &(cpu, task) in &stopped {
            self.core.switch(cpu, task);
            self.forget_branches(cpu);
            if cpu != entered {
                self.core.leave_kernel(cpu);
            }
        }
        self.core.run_on(entered);
    }

    /// Removes the module.
    fn unload(&mut self) {
        assert!(
            !calls::is_module_used(),
            "no event is open, and the module is in use"
        );
        calls::set_module_going(true);
        let pmu = calls::built_in();
        self.module = None;
        calls::set_module_going(false);
        built_in::take_back();
        // SAFETY: The structure of the built-in PMU lives as long as the thread.
        let callback = unsafe { (*pmu).add };
        let mut original: pmu = kernel::zeroed();
        built_in::fill(&mut original);
        let is_original = callback.map(|f| f as usize) == original.add.map(|f| f as usize);
        assert!(
            is_original,
            "the callbacks are not the built-in driver's again"
        );
    }

    /// Ends a history with the driver interposed: closes its events, and removes the module.
    pub(super) fn end_interposed(&mut self) {
        with_machine(|machine| machine.cpus.iter_mut().for_each(|cpu| cpu.probed_in = None));
        // The events of the built-in driver remain when the module is removed.
        let given_back: Vec<_> = (0..CPUS as usize)
            .filter(|cpu| built_in::is_others(*cpu))
            .collect();
        self.unload();
        if let Some(complaint) = kernel::complaint() {
            panic!("{complaint}");
        }
        self.check_given_back_on(given_back);
        for event in std::mem::take(&mut self.others) {
            self.core.close(&event);
        }
        assert!(
            with_machine(|machine| machine.perf_irq.is_none()),
            "the PMU is reserved"
        );
    }
}

/// Returns a machine with the driver interposed.
fn interposed(processor: Processor) -> Kind {
    Kind {
        is_interposed: true,
        ..Kind::partition(processor)
    }
}

/// Runs a history, then `last`.
fn run(history: &[Op], last: impl Fn(&World)) {
    let _one = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    for kind in Kind::of_each(interposed) {
        let mut world = World::new(kind, false);
        history.iter().for_each(|op| world.step(op));
        last(&world);
        world.end();
    }
}

#[test]
fn an_event_of_the_other_driver_waits_until_the_program_is_gone() {
    let history = [
        Op::Switch(0, 0),
        Op::OpenEbb(0, 3),
        Op::Open(1, super::directed::CYCLES),
        Op::Run(0, 5, 1, 2),
        Op::Switch(0, 1),
        Op::Run(0, 5, 1, 2),
        Op::Switch(0, NOBODY),
        Op::Switch(0, 0),
        Op::Run(0, 5, 1, 2),
    ];
    run(&history, |world| {
        assert_eq!(
            world.open[0].oncpu.get(),
            Some(0),
            "the program's event counts"
        );
    });
}

#[test]
fn a_program_finds_its_registers_after_the_other_driver_had_the_pmu() {
    let history = [
        Op::Switch(0, 0),
        Op::OpenEbb(0, 3),
        Op::User(0, UserWrite::Counter(5, 40)),
        Op::User(0, UserWrite::Mmcr2(0b11)),
        Op::Open(1, super::directed::CYCLES),
        Op::Switch(0, 1),
        Op::Run(0, 5, 1, 2),
        Op::Reload,
        Op::Switch(0, 0),
    ];
    run(&history[..7], |_| {
        assert!(!built_in::is_others(0), "the built-in driver has the PMU");
    });
    run(&history, |_| {});
}

#[test]
fn members_go_to_the_driver_of_their_leader() {
    let history = [
        Op::Switch(0, 0),
        Op::OpenEbb(0, 3),
        Op::Open(0, super::directed::CYCLES),
    ];
    run(&history, |world| {
        let core = &world.core;
        let (ebb, other) = (&world.open[0], &world.others[0]);
        let place = (Some(0), None);
        let open = |code, leader| core.open(World::attr(code, 0), place, Some(leader), None);
        // The driver of the group refuses events of the other kind.
        assert_eq!(open(CODES[2].0, ebb).map(|_| ()), Err(-22));
        assert_eq!(open(CODES[2].0 | EBB, other).map(|_| ()), Err(-22));
        assert!(calls::is_module_used());
    });
}

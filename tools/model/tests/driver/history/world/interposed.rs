// SPDX-License-Identifier: GPL-2.0

//! Histories with the driver interposed: the module is removed and inserted under the events of the
//! built-in driver.

use super::{
    directed::{CYCLES, NOBODY, in_each},
    *,
};

impl World {
    /// Removes the module and inserts it again, if it is interposed.
    pub(super) fn reload(&mut self) {
        if self.core.has_built_in() {
            self.reload_after(|_| ());
        }
    }

    /// Closes the EBB events, which hold references to the module, and removes the module. Calls
    /// `f`, and inserts the module again.
    fn reload_after<R>(&mut self, f: impl FnOnce(&Self) -> R) -> R {
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
        let result = f(self);
        self.module = Some(Module::load(true));
        for &(cpu, task) in &stopped {
            self.core.switch(cpu, task);
            self.forget_branches(cpu);
            if cpu != entered {
                self.core.leave_kernel(cpu);
            }
        }
        self.core.run_on(entered);
        result
    }

    /// Opens an event of task 0 at the built-in driver while the module is removed.
    fn open_before(&mut self, attr: perf_event_attr) -> Rc<Event> {
        self.core.enter_kernel(0);
        let opened = self.reload_after(|world| world.core.open(attr, (Some(0), None), None, None));
        self.core.leave_kernel(0);
        let event = opened.expect("an event of the built-in driver");
        self.others.push(event.clone());
        event
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

/// Returns a bare metal machine with the driver interposed.
fn bare_metal(processor: Processor) -> Kind {
    Kind {
        hypervisor: true,
        ..interposed(processor)
    }
}

/// Runs a history, then `last`.
fn run(history: &[Op], last: impl Fn(&World)) {
    in_each(interposed, |world, _| {
        history.iter().for_each(|op| world.step(op));
        last(world);
    });
}

/// Returns attributes of an EBB event that leads a group.
fn ebb_leader() -> perf_event_attr {
    let mut attr = World::attr(CODES[3].0 | EBB, 0);
    attr.set_pinned(1);
    attr.set_exclusive(1);
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    attr
}

#[test]
fn an_event_of_the_other_driver_waits_until_the_program_is_gone() {
    let history = [
        Op::Switch(0, 0),
        Op::OpenEbb(0, 3),
        Op::Open(1, CYCLES),
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
    // The built-in driver may program the same event, so that MMCR1 is the same.
    let mut history = vec![
        Op::Switch(0, 0),
        // On PMC1, so that MMCR1 is not 0.
        Op::OpenEbb(0, 4),
        Op::User(0, UserWrite::Counter(0, 40)),
        Op::User(0, UserWrite::Mmcr2(0b11)),
        Op::Switch(0, NOBODY),
        Op::Switch(0, 0),
        Op::Open(1, CYCLES),
        Op::Switch(0, 1),
        Op::Run(0, 5, 1, 2),
    ];
    run(&history, |_| {
        assert!(!built_in::is_others(0), "the built-in driver has the PMU");
    });
    for _ in 0..4 {
        let others = [Op::Switch(0, 1), Op::Run(0, 5, 1, 2)];
        history.extend([Op::Switch(0, 0)].into_iter().chain(others));
    }
    history.push(Op::Switch(0, 0));
    run(&history, |world| {
        assert_eq!(
            world.open[0].oncpu.get(),
            Some(0),
            "the program's event counts"
        );
    });
}

#[test]
fn the_built_in_driver_disables_a_pmu_that_it_gets_later() {
    let mut history = vec![Op::Open(1, CYCLES)];
    // The built-in driver refuses some events.
    for _ in 0..4 {
        history.extend([Op::Switch(1, 1), Op::Run(1, 5, 1, 2), Op::Switch(1, NOBODY)]);
    }
    in_each(bare_metal, |world, _| {
        history.iter().for_each(|op| world.step(op));
    });
}

/// KVM has run a guest there, and the built-in driver did not use the PMU.
#[test]
fn the_pmu_of_a_cpu_that_was_offline_is_taken() {
    in_each(bare_metal, |world, _| {
        world.step(&Op::Offline(1));
        world.core.enter_kernel(0);
        world.reload_after(|_| {
            with_machine(|machine| machine.cpus[1].lppaca.pmcregs_in_use = false);
        });
        world.core.leave_kernel(0);
        world.step(&Op::Online(1));
    });
}

/// KVM loads what it saved of the built-in driver's events after they were deleted.
#[test]
fn counters_that_run_when_the_pmu_changes_hands_are_frozen() {
    in_each(interposed, |world, _| {
        world.core.enter_kernel(0);
        world.core.switch(0, Some(0));
        let mut ebb = ebb_leader();
        ebb.config = 0x5_00fa | EBB;
        let open = |attr| {
            let event = world.core.open(attr, (Some(0), None), None, None);
            event.expect("an event")
        };
        // Each driver has had the PMU, and this one has turned it on.
        world.core.close(&open(ebb));
        world.core.close(&open(World::attr(CODES[0].0, 0)));
        with_cpu(|cpu| cpu.facility.mtspr(spr::MMCR0, mmcr0::PMAE | mmcr0::PMC1CE));
        let event = open(ebb);
        let counted = with_cpu(|cpu| cpu.facility.mfspr(spr::PMC1 + 4));
        assert_eq!(counted, 0, "the kernel's instructions");
        world.core.close(&event);
        world.core.leave_kernel(0);
    });
}

/// POWER8 comes up with a PMU that runs, and that programs may read.
#[test]
fn the_pmu_of_a_cpu_that_comes_up_again_is_taken_again() {
    in_each(bare_metal, |world, _| {
        world.step(&Op::Offline(1));
        world.step(&Op::Online(1));
        let mmcr0 = with_machine(|machine| machine.cpus[1].facility.mfspr(spr::MMCR0));
        assert!(mmcr0 & mmcr0::FC != 0, "the PMU runs: {mmcr0:#x}");
    });
}

/// A program with an EBB group of the built-in driver opens another group, which is this driver's.
#[test]
fn a_group_from_before_has_no_data_of_this_driver() {
    let mut before = ebb_leader();
    before.set_disabled(1);
    in_each(interposed, |world, _| {
        world.open_before(before);
        world.core.enter_kernel(0);
        world.core.switch(0, Some(0));
        let group = world.core.open(ebb_leader(), (Some(0), None), None, None);
        let group = group.expect("an EBB event");
        assert_eq!(group.oncpu.get(), Some(0), "the group counts");
        world.core.close(&group);
        world.core.leave_kernel(0);
    });
}

#[test]
fn members_of_a_group_from_before_go_to_the_built_in_driver() {
    in_each(interposed, |world, _| {
        let leader = world.open_before(ebb_leader());
        let attr = World::attr(CODES[2].0 | EBB, 0);
        let member = world.core.open(attr, (Some(0), None), Some(&leader), None);
        let member = member.expect("a member of a group of the built-in driver");
        assert!(!calls::is_module_used(), "the member is not this driver's");
        world.others.push(member);
    });
}

#[test]
fn members_go_to_the_driver_of_their_leader() {
    let history = [Op::Switch(0, 0), Op::OpenEbb(0, 3), Op::Open(0, CYCLES)];
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

// SPDX-License-Identifier: GPL-2.0

//! Partitions that are suspended, and resumed on another machine. No CPU comes online then
//! (`pseries_suspend()` in the kernel's `platforms/pseries/mobility.c`), and the hypervisor decides
//! what the PMUs hold.

use super::{
    directed::{CYCLES, NOBODY, in_each, run},
    *,
};
use pmu_model::{DROPPED, Isa, Lppaca};

/// Resets the registers of a PMU.
fn reset(facility: &mut Facility) {
    facility.mtspr(spr::MMCR0, mmcr0::FC);
    let v31 = facility.processor().isa() >= Isa::V31;
    let others = [spr::MMCR1, spr::MMCR2, spr::MMCR3, spr::MMCRA];
    let sampled = [spr::SIAR, spr::SDAR, spr::SIER, spr::SIER2, spr::SIER3];
    let all = others.into_iter().chain(sampled);
    for number in all.chain(spr::PMC1..=spr::PMC6) {
        let bhrbrd = v31 && number == spr::MMCRA;
        facility.mtspr(number, if bhrbrd { mmcra::BHRBRD } else { 0 });
    }
}

impl World {
    /// Suspends the partition while its CPUs run no program, and resumes it. Each PMU without an
    /// event then has the registers of another partition, or is reset.
    pub(super) fn suspend(&mut self, resets: bool) {
        if with_machine(|machine| machine.kind.hypervisor) {
            return;
        }
        let entered = with_machine(|machine| machine.current);
        for cpu in 0..CPUS as usize {
            if !self.core.online[cpu].get() {
                continue;
            }
            if cpu != entered {
                self.core.enter_kernel(cpu);
                self.let_interrupts_through(cpu);
            }
            self.count_suspend(cpu);
            let task = self.core.running[cpu].get();
            self.core.switch(cpu, None);
            let is_busy = self.core.has_events(cpu);
            if !is_busy {
                with_cpu(|cpu| {
                    let mut unused = Lppaca::default();
                    cpu.facility.preempt(&mut unused);
                    if resets {
                        reset(&mut cpu.facility);
                    }
                });
                self.untouched[cpu] = true;
            }
            self.preempt(cpu);
            self.core.switch(cpu, task);
            self.forget_branches(cpu);
            if cpu != entered {
                self.core.leave_kernel(cpu);
            }
        }
        self.core.run_on(entered);
    }
}

#[test]
fn events_count_what_they_ask_for_after_the_partition_was_suspended() {
    // An event on PMC1 to PMC4, or on PMC6, for which MMCR1 is 0.
    for code in [0, 3] {
        for resets in [false, true] {
            let of_code = wish!(CYCLES, code, period: 0, registers: false);
            let history = [
                Op::Switch(0, 0),
                Op::Open(0, of_code),
                Op::Run(0, 5, 3, 2),
                Op::Suspend(resets),
                Op::Run(0, 5, 3, 2),
                Op::Kernel(0, 5, false),
                Op::Switch(0, NOBODY),
                Op::Switch(0, 0),
                Op::Read(0),
            ];
            run(&history, |world, _| {
                assert_eq!(world.open[0].count(), 30);
            });
        }
    }
}

#[test]
fn a_program_finds_its_registers_after_the_partition_was_suspended() {
    // The program's handler runs, and has not read SIAR yet.
    for code in [3, 7] {
        for resets in [false, true] {
            let counter = if code == 3 { 5 } else { 1 };
            let history = [
                Op::Switch(0, 0),
                Op::OpenEbb(0, code),
                Op::User(0, UserWrite::Bescr(0b11)),
                Op::User(0, UserWrite::Mmcr2(1)),
                Op::User(0, UserWrite::Counter(counter, 4)),
                Op::Run(0, 8, 3, 3),
                Op::Suspend(resets),
                Op::User(0, UserWrite::Return),
                Op::Run(0, 8, 3, 3),
            ];
            run(&history, |_, _| {});
        }
    }
}

#[test]
fn an_event_may_come_to_a_new_cpu_before_the_hotplug_core_calls_the_driver() {
    // Events of a CPU may be opened as soon as it is online.
    in_each(Kind::partition, |world, kind| {
        let open = |core: &PerfCore| {
            let attr = World::attr(CODES[0].0, 1 << 20);
            core.open(attr, (None, Some(1)), None, None)
                .expect("an event")
        };
        let core = world.core.clone();
        core.close(&open(&core));
        world.step(&Op::Offline(1));
        core.online(1, || core.close(&open(&core)));
        core.run_on(0);
        assert_eq!(kernel::complaint(), None, "{:?}", kind.processor);
    });
}

/// Opens an event of a CPU.
pub(super) fn open_on(world: &mut World, cpu: usize, code: usize) -> Rc<Event> {
    world.add(World::attr(CODES[code].0, 1 << 20), (None, Some(cpu)), None);
    world.core.run_on(cpu);
    world.open[0].clone()
}

/// Restarts an event that perf core has throttled. For that the tick disables and enables the PMU.
pub(super) fn start_again(world: &World, event: &Event) {
    event.set_interrupts(u64::MAX);
    world.core.tick(event.oncpu.get().expect("a CPU"));
}

/// Closes an event that has lost its registers.
fn close(world: &mut World, event: &Rc<Event>) {
    let _ = kernel::complaint();
    world.core.close(event);
    world.open.clear();
    world.core.run_on(0);
}

#[test]
fn an_event_of_a_cpu_counts_again_once_the_pmu_is_enabled() {
    in_each(Kind::partition, |world, kind| {
        let event = open_on(world, 0, 0);
        let numbers = [spr::MMCR1, spr::MMCR2];
        let values = || with_cpu(|cpu| numbers.map(|number| cpu.facility.mfspr(number)));
        let before = values();
        assert_ne!(before[0], 0);
        // xmon and `CONFIG_PMU_SYSFS` can write registers like this.
        let counter = spr::PMC1 + event.idx() as u32 - 1;
        with_cpu(|cpu| {
            for number in numbers {
                cpu.facility.mtspr(number, 0);
            }
            cpu.facility.mtspr(counter, DROPPED);
        });
        start_again(world, &event);
        assert_eq!(values(), before, "{:?}", kind.processor);
        // The event did not count in between, and must not count the value that the counter held.
        assert!(kernel::complaint().is_some());
        assert!(world.core.read(&event) < 1000, "{:?}", kind.processor);
        close(world, &event);
    });
}

#[test]
fn a_pmu_that_forgets_what_is_written_is_not_turned_on_again_and_again() {
    // An event on PMC1 to PMC4, or on PMC6, for which MMCR1 is 0.
    for code in [0, 3] {
        in_each(Kind::partition, |world, kind| {
            let event = open_on(world, 0, code);
            with_cpu(|cpu| cpu.is_denied = true);
            start_again(world, &event);
            with_cpu(|cpu| cpu.pmcs_enabled = false);
            (0..3).for_each(|_| start_again(world, &event));
            let called = with_cpu(|cpu| std::mem::replace(&mut cpu.pmcs_enabled, true));
            assert!(!called, "{:?}, code {code}", kind.processor);
            with_cpu(|cpu| cpu.is_denied = false);
            close(world, &event);
        });
    }
}

#[test]
fn a_pmu_that_forgot_what_was_written_is_looked_at_again_after_its_cpu_came_up() {
    in_each(Kind::partition, |world, kind| {
        let event = open_on(world, 1, 0);
        with_cpu(|cpu| cpu.is_denied = true);
        start_again(world, &event);
        with_cpu(|cpu| cpu.is_denied = false);
        close(world, &event);
        world.step(&Op::Offline(1));
        world.step(&Op::Online(1));

        let event = open_on(world, 1, 0);
        let mmcr1 = || with_cpu(|cpu| cpu.facility.mfspr(spr::MMCR1));
        let before = mmcr1();
        assert_ne!(before, 0);
        with_cpu(|cpu| cpu.facility.mtspr(spr::MMCR1, 0));
        start_again(world, &event);
        assert_eq!(mmcr1(), before, "{:?}", kind.processor);
        close(world, &event);
    });
}

// SPDX-License-Identifier: GPL-2.0

//! Invariants between steps: what the driver reports to the kernel, the hypervisor and perf core,
//! and the values that it leaves in registers.

use super::*;
use pmu_model::Isa;

impl World {
    pub(super) fn check_invariants(&self) {
        assert!(
            !self.core.untimed.get(),
            "an interrupt with a sample is not timed"
        );
        for (number, task) in self.core.tasks.borrow().iter().enumerate() {
            // SAFETY: The task exists, and no other thread changes it.
            let thread = unsafe { (*task.raw()).thread };
            // `ptrace` must show only those bits of a program that the program can write.
            let kernels = [
                u64::from(thread.mmcr0) & !(mmcr0::FC | mmcr0::PMAE | mmcr0::PMAO),
                thread.mmcr2 as u64 & !(0..6).fold(0, |all, n| all | mmcr2::FCP0 >> (9 * n)),
            ];
            assert_eq!(kernels, [0; 2], "task {number}: bits of the kernel's");
        }
        for cpu in 0..CPUS as usize {
            let here = |event: &&Rc<Event>| event.oncpu.get() == Some(cpu);
            let events: Vec<_> = self.open.iter().filter(here).collect();
            let stack = perf_event_sample_format_PERF_SAMPLE_BRANCH_STACK;
            let users = events
                .iter()
                .filter(|event| event.samples_with(stack))
                .count();
            assert_eq!(
                self.core.sched_cb_usage(cpu) as usize,
                users,
                "CPU {cpu}: events with branch stacks"
            );
            with_machine(|machine| {
                let cpu = &machine.cpus[cpu];
                assert_eq!(
                    cpu.ext_regs, [0; 6],
                    "counters are shown outside of samples"
                );
                // The built-in driver clears it with its last event, which only matters to KVM.
                let may_clear = machine.kind.is_interposed && !machine.kind.hypervisor;
                assert!(
                    cpu.lppaca.pmcregs_in_use || may_clear && events.is_empty(),
                    "the hypervisor may put back other registers"
                );
                let counts = events.iter().any(|event| !is_ebb(event));
                let prompt = counts && !cpu.facility.context.hypervisor;
                assert_eq!(
                    cpu.prompt_pmis, prompt,
                    "PM interrupts in handlers of others"
                );
                for event in &events {
                    check_counter(event, &cpu.facility);
                }
                if counts {
                    check_conditions(&cpu.facility);
                }
                let marked = events.iter().any(|event| is_marked(event));
                let marking = cpu.facility.mfspr(spr::MMCRA) & mmcra::SAMPLE_ENABLE != 0;
                assert!(
                    marking == marked || events.is_empty(),
                    "instructions are marked: {marking}"
                );
            });
        }
    }

    /// Checks a PMU that was given back: programs may read it, but find no values of others.
    pub(super) fn check_given_back(&self) {
        self.check_given_back_on(0..CPUS as usize);
    }

    /// Checks that the PMUs of these CPUs were given back.
    pub(super) fn check_given_back_on(&self, cpus: impl IntoIterator<Item = usize>) {
        for cpu in cpus {
            // Its kernel returns to a program.
            with_machine(|machine| machine.cpus[cpu].facility.synchronize());
            let number = spr::MMCR0 - spr::PROBLEM;
            let mmcr0 = with_machine(|machine| machine.cpus[cpu].facility.problem_mfspr(number));
            assert!(
                mmcr0.is_ok() || !self.core.online[cpu].get(),
                "CPU {cpu} is closed"
            );
            if !self.core.online[cpu].get() {
                continue;
            }
            let counters = spr::PMC1..=spr::PMC6;
            let others = [
                spr::MMCR1,
                spr::MMCR2,
                spr::MMCRA,
                spr::SIAR,
                spr::SDAR,
                spr::SIER,
            ];
            for number in counters.chain(others) {
                let left = with_machine(|machine| {
                    let facility = &machine.cpus[cpu].facility;
                    facility.problem_mfspr(number - spr::PROBLEM)
                });
                let left = left.unwrap_or(0);
                assert_eq!(left, 0, "CPU {cpu}: SPR {number} is left");
            }
            let records = with_machine(|machine| {
                let facility = &machine.cpus[cpu].facility;
                let bhrbrd = facility.mfspr(spr::MMCRA) & mmcra::BHRBRD;
                facility.processor().isa() >= Isa::V31 && bhrbrd == 0
            });
            assert!(!records, "CPU {cpu} goes on recording branches");
            for number in [spr::SIER2, spr::SIER3] {
                let left = with_machine(|machine| machine.cpus[cpu].facility.mfspr(number));
                assert_eq!(left, 0, "CPU {cpu}: SPR {number} is left");
            }
            // Programs may not write registers or get EBBs either.
            let mut facility = with_machine(|machine| machine.cpus[cpu].facility.clone());
            let ebe = facility.mfspr(spr::MMCR0) & mmcr0::EBE;
            let is_open = facility.problem_mtspr(number, 0).is_ok();
            let has_bhrb = facility.problem_mfbhrbe(0).is_ok();
            assert!(ebe == 0 && !is_open && !has_bhrb, "CPU {cpu} is open");
        }
    }
}

/// Checks that no counter, used or unused, has a condition that would cause the next alert at once.
fn check_conditions(facility: &Facility) {
    // An idle CPU may not have synchronized the write that starts the PMU.
    let mmcr0 = facility.in_effect(spr::MMCR0);
    let is_missed = facility.processor().misses_negative_at_enable();
    if mmcr0 & mmcr0::PMAE == 0 || is_missed || facility.has_delayed_alert() {
        return;
    }
    for number in spr::PMC1..=spr::PMC6 {
        let is_first = number == spr::PMC1;
        let enable = if is_first {
            mmcr0::PMC1CE
        } else {
            mmcr0::PMCJCE
        };
        let is_condition = mmcr0 & enable != 0 && facility.is_negative(number);
        assert!(!is_condition, "SPR {number} stays negative");
    }
}

/// Checks an event's counter: it counts what the event requests, and none of its alerts was lost.
fn check_counter(event: &Event, facility: &Facility) {
    let Some(pmc) = event.idx().checked_sub(1) else {
        return;
    };
    let negative = facility.is_negative(spr::PMC1 + pmc as u32);
    let id = event.id;
    let is_lost = negative && !is_ebb(event) && !facility.has_delayed_alert();
    assert!(!is_lost, "event {id}: its alert is lost");
    if pmc < 4 && facility.processor().isa() >= Isa::V31 {
        let wanted = event.attr().config >> 45 & 0x7fff;
        let found = facility.mfspr(spr::MMCR3) >> (49 - 15 * pmc) & 0x7fff;
        assert_eq!(found, wanted, "event {id}: its part of MMCR3");
    }
}

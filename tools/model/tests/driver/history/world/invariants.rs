// SPDX-License-Identifier: GPL-2.0

//! What holds at any time: what kernel, hypervisor and perf core are told, and what is left in the
//! registers.

use super::*;
use pmu_model::{FOREIGN, Isa, mmcra};

impl World {
    pub(super) fn check_invariants(&self) {
        assert!(
            !self.core.untimed.get(),
            "an interrupt with a sample is not timed"
        );
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
                if events.is_empty() {
                    assert!(
                        !cpu.lppaca.pmcregs_in_use,
                        "registers without events are in use"
                    );
                }
                let counts = events.iter().any(|event| !is_ebb(event));
                let prompt = counts && !cpu.facility.context.hypervisor;
                assert_eq!(cpu.prompt, prompt, "PM interrupts in handlers of others");
                for event in &events {
                    check_counter(event, &cpu.facility);
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

    /// The PMU was given back: programs may read it, but nothing of others.
    pub(super) fn check_given_back() {
        for cpu in 0..CPUS as usize {
            let left = with_machine(|machine| {
                let facility = &machine.cpus[cpu].facility;
                [spr::SIAR, spr::SDAR].map(|number| facility.problem_mfspr(number - spr::PROBLEM))
            });
            for value in left.into_iter().flatten() {
                assert!(
                    value == 0 || value == FOREIGN,
                    "CPU {cpu}: {value:#x} is left"
                );
            }
        }
    }
}

/// An event's counter: it counts what the event asks for, and no alert of it got lost.
fn check_counter(event: &Event, facility: &Facility) {
    let Some(pmc) = event.idx().checked_sub(1) else {
        return;
    };
    let negative = facility.is_negative(spr::PMC1 + pmc as u32);
    let id = event.id;
    assert!(is_ebb(event) || !negative, "event {id}: its alert is lost");
    if pmc < 4 && facility.processor().isa() >= Isa::V31 {
        let wanted = event.attr().config >> 45 & 0x7fff;
        let found = facility.mfspr(spr::MMCR3) >> (49 - 15 * pmc) & 0x7fff;
        assert_eq!(found, wanted, "event {id}: its part of MMCR3");
    }
}

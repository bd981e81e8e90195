// SPDX-License-Identifier: GPL-2.0

//! Changes of the program's events on the PMU: to another group, or to other events of the group.

use super::{Counter, Program, after_kernel::alert, counters, kernels, of_sample};
use crate::perf_core::Event;
use pmu_model::{Facility, mmcr0, mmcr2, spr};
use std::rc::Rc;

const NEGATIVE: u64 = 0x8000_0000;

impl Program {
    /// Puts another group on the PMU, or other events of the group. A counter continues with the
    /// value that it had when its event was last on the PMU, and the program keeps its registers.
    /// But if the group `is_new`, because it has not been on a PMU before, the program finds the
    /// registers as if it had written none.
    pub fn regroup(&mut self, facility: &Facility, events: &[Rc<Event>], is_new: bool) {
        let counted_kernel = self.counters.iter().any(|counter| counter.includes_kernel);
        match &mut self.predicted {
            Some(predicted) if !counted_kernel => predicted.regroup(facility, events, is_new),
            predicted => *predicted = None,
        }
        // A counter may have overflowed in the kernel before its event was removed.
        let overflows = |counter: &Counter| {
            let value = self.own.mfspr(spr::PMC1 + counter.pmc as u32);
            value < NEGATIVE && value + self.more_in_kernel(counter) >= NEGATIVE
        };
        if self.counters.iter().any(overflows) {
            alert(&mut self.own);
            // The EBB occurred when the kernel returned, perhaps to a program without a group.
            let from = facility.mfspr(spr::EBBRR);
            let at = self.own.enter_problem_state(from);
            if self.nip == from {
                self.nip = at;
            }
            for number in of_sample(self.own.processor()).to_vec() {
                self.own.mtspr(number, facility.mfspr(number));
            }
        }
        let before = std::mem::take(&mut self.counters);
        for counter in &before {
            // The counter has counted in the kernel until its event was removed.
            let more = self.more_in_kernel(counter);
            let value = self.own.mfspr(spr::PMC1 + counter.pmc as u32) + more;
            self.saved
                .insert(counter.id, (value, counter.in_kernel + more));
        }
        // The driver may clear a counter without an event, or leave the program's value in it.
        if is_new {
            for number in spr::PMC1..=spr::PMC6 {
                self.own.mtspr(number, 0);
            }
            self.reset();
        }
        let user = self.own.mfspr(spr::MMCR0) & mmcr0::USER;
        let user2 = self.own.mfspr(spr::MMCR2) & mmcr2::USER;
        // An exception that exists remains.
        self.own.mtspr(spr::MMCR0, mmcr0::FC | user & mmcr0::PMAO);
        let [mmcr0, mmcr2] = kernels(facility);
        self.own.mtspr(spr::MMCR2, mmcr2 | user2);
        for number in [spr::MMCR1, spr::MMCR3] {
            self.own.mtspr(number, facility.mfspr(number));
        }
        let users = self.users_mmcra();
        let threshold = self.own.mfspr(spr::MMCRA) & users;
        let mmcra = facility.mfspr(spr::MMCRA) & !users;
        self.own.mtspr(spr::MMCRA, mmcra | threshold);
        self.counters = counters(events);
        // The program finds no trace of an event that it closed or disabled: otherwise an alert of
        // that event would occur again and again.
        for Counter { pmc, .. } in before {
            if !self.has_counter(pmc) {
                self.own.mtspr(spr::PMC1 + pmc as u32, 0);
            }
        }
        for counter in &mut self.counters {
            let value;
            (value, counter.in_kernel) = self.saved.remove(&counter.id).unwrap_or((0, 0));
            self.own.mtspr(spr::PMC1 + counter.pmc as u32, value);
        }
        self.own.clrbhrb();
        self.own.mtspr(spr::MMCR0, mmcr0 | user);
        self.find_alert_of_kernel(facility, user);
    }
}

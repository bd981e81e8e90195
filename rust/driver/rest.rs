// SPDX-License-Identifier: GPL-2.0

//! Events stay on the PMU as others leave it: those that stay keep their counters.
//!
//! A group that is closed leaves the PMU event by event, which is disabled and enabled each time.
//! What is left is not solved anew, unless it counts by other codes than its events ask for. Its
//! control registers are made of what these events ask for on the counters that they are on, so
//! that nothing in them is of an event that left: it marks no instructions, filters no branches,
//! raises no alerts, and does not keep the PMU counting in states that all others exclude. Only
//! registers that differ are written.

use super::{
    branch,
    counters::clear_counters,
    cpu_state::{
        local_pmu,
        ExclusiveCpu, //
    },
    event,
    Driver, //
};
use crate::{
    isa207::Assignment,
    power::{
        machine,
        pmu::LocalPmu,
        regs::{
            Mmcr0,
            Mmcr1,
            Mmcr3, //
        }, //
    }, //
};
use kernel::pr_err_once;

impl Driver {
    /// As [`Driver::run`], for events that are on counters, as the PMU ran them, maybe beside
    /// others.
    #[inline(never)]
    pub(super) fn run_rest(&self, this_cpu: &ExclusiveCpu) {
        let (events, state) = (this_cpu.slots().iter(), this_cpu.state());
        // CAST: At most eight.
        let used = state.unused_counters.get().count_zeros() as usize;
        if this_cpu.slots().len() == used {
            // Others came and were taken back, as their transaction failed.
            branch::clear_stale(this_cpu, &local_pmu(this_cpu.irqs_off()));
            state.set_unchanged();
        } else if state.as_asked.get() {
            let place = |event| Some((event::demand(event), event::pmc(event)?));
            let assignment = self.model.assign_placed(events.filter_map(place));
            self.program_rest(this_cpu, &assignment);
        } else {
            // What they count by is not what they ask for.
            self.run_anew(this_cpu);
            return;
        }
        self.run_again(this_cpu);
    }

    /// Programs the frozen PMU with the CPU's events, which stay on their counters.
    #[inline]
    fn program_rest(&self, this_cpu: &ExclusiveCpu, assignment: &Assignment) {
        let (local, state) = (local_pmu(this_cpu.irqs_off()), this_cpu.state());
        let (held, mmcr) = (state.mmcr.get(), &assignment.mmcr);
        state.left.unsolved();
        self.set_images(this_cpu, &local, assignment);
        if held.mmcr1 != mmcr.mmcr1 {
            Mmcr1::write(mmcr.mmcr1);
        }
        // That of a program is written with its own bits as the PMU starts.
        if !state.ebb.get() {
            self.write_mmcr2(this_cpu, mmcr.mmcr2);
        }
        if held.mmcr3 != mmcr.mmcr3 {
            Mmcr3::write(mmcr.mmcr3);
        }
        let stale = state.left.take_stale();
        if state.ebb.get() {
            // Its program finds nothing of what it closed.
            branch::clear_bhrb(this_cpu, &local);
        }
        // What is negative there would be an alert; see `Driver::program`.
        let all = state.ebb.get() || self.machine.hypervisor_mode;
        clear_counters(state.unused_counters.get() & if all { !0 } else { stale });
    }

    /// Notes with which control registers, and on which counters, the frozen PMU is programmed with
    /// the events in the CPU's slots.
    #[inline(always)] // For events that stay, as the images are known bit by bit then.
    pub(super) fn set_images(
        &self,
        this_cpu: &ExclusiveCpu,
        local: &LocalPmu<'_>,
        assignment: &Assignment,
    ) {
        let (mmcr, state) = (&assignment.mmcr, this_cpu.state());
        let ebb = state.ebb.get();
        branch::prepare_bhrb(self, this_cpu, local, mmcr);
        state.mmcr.set(*mmcr);
        this_cpu.mmcr0.set(mmcr.mmcr0);
        let mut start_mmcr0 = Mmcr0::from(mmcr.mmcr0).alerting();
        if ebb {
            start_mmcr0 = start_mmcr0.for_ebb(machine::has_bhrb());
        }
        state.start_mmcr0.set(start_mmcr0.into());
        state.idle_mmcra.set(self.idle_mmcra(mmcr.mmcra, ebb));
        let counts_kernel = !assignment.is_frozen_in_kernel(self.machine);
        state.counts_kernel.set(counts_kernel);
        state.unused_counters.set(!assignment.pmcs.as_set());
        state.set_unchanged();
    }

    /// The assignment for the CPU's events.
    pub(super) fn assignment(&self, this_cpu: &ExclusiveCpu) -> Option<Assignment> {
        // Without a transaction the events are what others left of a set that was found to fit.
        let solved_groups = &this_cpu.state().solved_groups;
        let solved = self.solve(this_cpu).map(|solved| solved_groups.get(solved));
        match solved.or_else(|_| self.assign_rest(this_cpu).map(Some)) {
            Ok(assignment) => assignment,
            Err(refusal) => {
                // What is left of a set that fits always counts on, so this is a bug. The PMU stays
                // disabled.
                pr_err_once!("scheduled events do not fit: {}\n", refusal.reason());
                None
            }
        }
    }
}

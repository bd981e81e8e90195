// SPDX-License-Identifier: GPL-2.0

//! Events stay on the PMU as others leave it: those that stay keep their counters.
//!
//! A group that is closed leaves the PMU event by event, which is disabled and enabled each time.
//! What is left is not solved anew, unless it counts by other codes than its events ask for. Its
//! control registers are made of what these events ask for on the counters that they are on, or, if
//! no two events share a field, by clearing those of the counters that were left: either way so
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
    isa207::{
        Assignment,
        Mmcr, //
    },
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
        let state = this_cpu.state();
        let used = !state.unused_counters.get();
        let stay = used & !state.left.stale();
        let len = this_cpu.slots().len();
        // CAST: At most eight.
        if len == used.count_ones() as usize {
            // Others came and were taken back, as their transaction failed.
            branch::clear_stale(this_cpu, &local_pmu(this_cpu.irqs_off()));
            state.set_unchanged();
        } else if !state.as_asked.get() {
            // What they count by is not what they ask for.
            self.run_others(this_cpu);
            return;
        } else if state.separable.get() && len == stay.count_ones() as usize {
            // Each counter that an event left is stale. If as many others are as events stay, none
            // is for another reason, as all are when a CPU comes up.
            self.program_without(this_cpu, used & !stay);
        } else {
            self.program_rest(this_cpu);
            return;
        }
        self.run_again(this_cpu);
    }

    /// Programs the frozen PMU without the events that were on the counters `gone`: the images are
    /// known without a look at the others. Which states all are frozen in, MMCRA and the BHRB's
    /// filter do not depend on these, so what follows from them stays, too.
    #[inline]
    fn program_without(&self, this_cpu: &ExclusiveCpu, gone: u8) {
        let (local, state) = (local_pmu(this_cpu.irqs_off()), this_cpu.state());
        let held = state.mmcr.get();
        let unused = state.unused_counters.get() | gone;
        let mmcr = held.without(self.model.isa(), gone, !unused);
        state.mmcr.set(mmcr);
        state.unused_counters.set(unused);
        branch::clear_stale(this_cpu, &local);
        // The bits that depend on the counters are the same in all.
        let changed = held.mmcr0 ^ mmcr.mmcr0;
        this_cpu.mmcr0.set(this_cpu.mmcr0.get() ^ changed);
        state.start_mmcr0.set(state.start_mmcr0.get() ^ changed);
        state.set_unchanged();
        self.write_rest(this_cpu, &local, &held, &mmcr);
    }

    /// Programs the frozen PMU with the CPU's events, which stay on their counters, and starts it.
    #[inline(never)]
    fn program_rest(&self, this_cpu: &ExclusiveCpu) {
        let (local, state) = (local_pmu(this_cpu.irqs_off()), this_cpu.state());
        let place = |event| Some((event::demand(event), event::pmc(event)?));
        let events = this_cpu.slots().iter().filter_map(place);
        let assignment = self.model.assign_placed(events);
        let held = state.mmcr.get();
        self.set_images(this_cpu, &local, &assignment);
        self.write_rest(this_cpu, &local, &held, &assignment.mmcr);
        self.run_again(this_cpu);
    }

    /// Writes those registers that `held` differs in from `mmcr`, and clears the counters that
    /// events left.
    #[inline(always)] // For the two above.
    fn write_rest(&self, this_cpu: &ExclusiveCpu, local: &LocalPmu<'_>, held: &Mmcr, mmcr: &Mmcr) {
        let state = this_cpu.state();
        if held.mmcr1 != mmcr.mmcr1 {
            Mmcr1::write(mmcr.mmcr1);
        }
        if held.mmcr3 != mmcr.mmcr3 {
            Mmcr3::write(mmcr.mmcr3);
        }
        state.left.unsolved();
        let stale = state.left.take_stale();
        let unused = state.unused_counters.get();
        if state.ebb.get() {
            // MMCR2 is written with the program's own bits as the PMU starts. The program finds
            // nothing of what it closed, and can read and write all counters.
            branch::clear_bhrb(this_cpu, local);
            clear_counters(unused);
        } else {
            self.write_mmcr2(this_cpu, mmcr.mmcr2);
            // What is negative there would be an alert; see `Driver::program`.
            let all = self.machine.hypervisor_mode;
            clear_counters(unused & if all { !0 } else { stale });
        }
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
        branch::prepare_bhrb(self, this_cpu, local, mmcr);
        state.mmcr.set(*mmcr);
        set_mmcr0(this_cpu, mmcr.mmcr0);
        let idle_mmcra = self.idle_mmcra(mmcr.mmcra, state.ebb.get());
        state.idle_mmcra.set(idle_mmcra);
        let counts_kernel = !assignment.is_frozen_in_kernel(self.machine);
        state.counts_kernel.set(counts_kernel);
        state.unused_counters.set(!assignment.pmcs.as_set());
        state.separable.set(assignment.is_separable());
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

/// Notes with which MMCR0 the frozen PMU is to start, the program's bits aside.
#[inline]
fn set_mmcr0(this_cpu: &ExclusiveCpu, mmcr0: u64) {
    let mut start_mmcr0 = Mmcr0::from(mmcr0).alerting();
    this_cpu.mmcr0.set(start_mmcr0.into());
    if this_cpu.state().ebb.get() {
        start_mmcr0 = start_mmcr0.for_ebb(machine::has_bhrb());
    }
    this_cpu.state().start_mmcr0.set(start_mmcr0.into());
}

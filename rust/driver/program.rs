// SPDX-License-Identifier: GPL-2.0

//! Stopping and starting a CPU's PMU, and writing to it in between what `schedule.rs` decided.

use super::{
    alert,
    branch,
    count,
    ebb,
    is_ebb,
    local_pmu,
    Driver,
    Here, //
};
use crate::{
    isa207::Assignment,
    perf::Event, //
    power::{
        machine, //
        pmu::{
            self,
            LocalPmu, //
        },
        regs::{
            Mmcr0,
            Mmcr1,
            Mmcr2,
            Mmcr3,
            Mmcra, //
        },
    },
};
use kernel::{
    pr_err_once,
    sync::atomic::Relaxed, //
};

impl Driver {
    /// See [`crate::perf::Pmu::pmu_disable`].
    pub(super) fn stop_pmu(&self, here: &Here<'_>) {
        if here.stopped.replace(true) {
            return;
        }
        let local = local_pmu(here);
        self.turn_on(here, &local);
        let before = local.freeze(self.is_v31());

        let mmcra = Mmcra::from(here.mmcr.get().mmcra);
        let mut quiet = mmcra.with_const_sample_enable::<0>();
        if self.is_v31() {
            quiet = quiet.with_const_bhrbrd::<1>();
        }
        if quiet != mmcra {
            quiet.write();
            pmu::synchronize();
        }

        if before.ebe() == 1 {
            ebb::switch_out(self, here, before);
        }
        local.clear_sampled();
    }

    /// See [`crate::perf::Pmu::pmu_enable`].
    pub(super) fn start_pmu(&self, here: &Here<'_>) {
        if !here.stopped.get() {
            return;
        }
        let local = local_pmu(here);
        if here.slots().len() == 0 {
            local.set_in_use(false);
            local.set_prompt(false);
            if self.is_v31() {
                alert::close();
            }
            return;
        }
        if here.changed.get() && !self.program(here, &local) {
            return;
        }

        let mmcr = here.mmcr.get();
        let mmcra = Mmcra::from(mmcr.mmcra);
        let waiting = mmcra.with_const_sample_enable::<0>();
        waiting.write();

        let mut mmcr0 = Mmcr0::from(mmcr.mmcr0).alerting();
        if here.ebb.get() {
            mmcr0 = ebb::switch_in(self, here, &mmcr, mmcr0);
        } else if here.slots().iter().any(is_negative) {
            // Its alert was taken back when the PMU was stopped.
            local.pend_interrupt();
        }
        here.stopped.set(false);
        pmu::synchronize();
        mmcr0.write();
        if waiting != mmcra {
            pmu::synchronize();
            mmcra.write();
        }
    }

    /// Turns this CPU's PMU on when the CPU came up since that was last done.
    fn turn_on(&self, here: &Here<'_>, local: &LocalPmu) {
        let came_up = self.hotplug.came_up(here.id());
        if came_up || !here.turned_on.get() {
            local.turn_on();
            here.turned_on.set(true);
        }
    }

    /// Writes the events that are on this CPU now to its stopped PMU. Returns whether it may start.
    fn program(&self, here: &Here<'_>, local: &LocalPmu) -> bool {
        let Some(assignment) = self.settle(here) else {
            return false;
        };
        // EBB groups are exclusive, so the first event speaks for all.
        let ebb_leader = here.slots().get(0).filter(|event| is_ebb(event));
        let ebb = ebb_leader.is_some();
        branch::discard_stale(here, local, &assignment.mmcr);
        here.mmcr.set(assignment.mmcr);
        here.ebb.set(ebb);
        here.changed.set(false);

        self.turn_on(here, local);
        local.set_in_use(true);
        // The alerts of a program with EBBs are no interrupts.
        local.set_prompt(!ebb && machine::wants_prompt());
        Mmcr1::write(assignment.mmcr.mmcr1);
        if self.is_v31() {
            Mmcr3::write(assignment.mmcr.mmcr3);
        }
        if let Some(leader) = ebb_leader {
            ebb::begin(here, leader);
            // What was recorded and counted before is not for the program that can read it now.
            local.clear_bhrb();
            clear_free_counters(&assignment);
        } else {
            Mmcr2::write(assignment.mmcr.mmcr2);
        }

        let placed = || {
            let indices = assignment.placements().map(|(pmc, _)| pmc.index());
            here.slots().iter().zip(indices)
        };
        // All that move leave their counters first, as one may move to where another was.
        for (event, index) in placed() {
            leave_other(here, event, index);
        }
        for (event, index) in placed() {
            if count::counter(event).is_none() {
                enter(here, event, index, ebb);
            }
        }
        true
    }

    /// Where this CPU's events count, worked out if nobody has.
    fn settle(&self, here: &Here<'_>) -> Option<Assignment> {
        if let Some(assignment) = here.assignment.get() {
            return Some(assignment);
        }
        match self.assign(here, None) {
            Ok(assignment) => {
                here.assignment.set(Some(assignment));
                Some(assignment)
            }
            Err(refusal) => {
                // Part of what could count together can, so this is a bug. Nothing counts then.
                pr_err_once!("scheduled events do not fit: {}\n", refusal.reason());
                None
            }
        }
    }
}

/// Whether an event's counter is negative.
fn is_negative(event: &Event) -> bool {
    count::counter(event).is_some_and(|index| pmu::read_pmc(index) >= pmu::NEGATIVE)
}

/// Takes an event off its counter unless that is `index`.
fn leave_other(here: &Here<'_>, event: &Event, index: usize) {
    if let Some(old) = count::counter(event).filter(|&old| old != index) {
        count::read(event);
        pmu::write_pmc(old, 0);
        event.hw().set_idx(here, 0);
    }
}

/// Puts an event on a counter.
fn enter(here: &Here<'_>, event: &Event, index: usize, ebb: bool) {
    let prev = event.hw().prev_count();
    let value = if ebb {
        // CAST: A counter's value was stored there.
        prev.load(Relaxed) as u32
    } else {
        let value = count::initial_value(here, event);
        prev.store(value.into(), Relaxed);
        value
    };
    pmu::write_pmc(index, value);
    // CAST: One of six counters.
    event.hw().set_idx(here, index as u8 + 1);
    event.update_userpage();
}

/// Sets counters to 0 that no event is on.
fn clear_free_counters(assignment: &Assignment) {
    for index in 0..pmu::COUNTERS {
        if !assignment.placements().any(|(pmc, _)| pmc.index() == index) {
            pmu::write_pmc(index, 0);
        }
    }
}

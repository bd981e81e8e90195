// SPDX-License-Identifier: GPL-2.0

//! `pmu_disable` and `pmu_enable`: freezing a CPU's PMU, and programming it with the events that
//! `schedule.rs` added or deleted in between.

use super::{
    branch,
    count,
    cpu_state::{
        local_pmu,
        ExclusiveCpu,
        ThisCpu, //
    },
    ebb,
    event::{
        counter,
        is_ebb, //
    },
    Driver, //
};
use crate::{
    isa207::Assignment,
    perf::Event,
    power::{
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
        }, //
    }, //
};
use kernel::pr_err_once;

impl Driver {
    /// See [`crate::perf::Pmu::pmu_disable`].
    pub(super) fn pmu_disable(&self, this_cpu: &ExclusiveCpu<'_>) {
        if this_cpu.disabled.get() {
            return;
        }
        this_cpu.disabled.set(true);
        let local = local_pmu(this_cpu.irqs_off());
        // A CPU that came up again is still disabled.
        if !this_cpu.state().turned_on.get() {
            self.turn_on(this_cpu, &local);
        }
        let is_v31 = self.is_v31();
        let program = if this_cpu.state().ebb.get() {
            Some(local.freeze_program(is_v31))
        } else {
            local.freeze(is_v31);
            None
        };

        // Stop marking instructions and, where MMCRA can tell it to, recording branches.
        let mmcra = Mmcra::from(this_cpu.state().mmcr.get().mmcra);
        let mut idle = mmcra.with_const_sample_enable::<0>();
        if is_v31 {
            idle = idle.with_const_bhrbrd::<1>();
        }
        if idle != mmcra {
            idle.write();
            pmu::synchronize();
        }

        if let Some((mmcr0, mmcr2)) = program {
            ebb::switch_out(self, this_cpu, mmcr0, mmcr2);
        }
        local.clear_siar_sdar();
    }

    /// See [`crate::perf::Pmu::pmu_enable`].
    pub(super) fn pmu_enable(&self, this_cpu: &ExclusiveCpu<'_>) {
        if !this_cpu.disabled.get() {
            return;
        }
        let local = local_pmu(this_cpu.irqs_off());
        if this_cpu.slots().len() == 0 {
            local.set_prompt(false);
            if this_cpu.state().ebb.replace(false) {
                clear_counters(this_cpu.state().unused_counters.get());
            }
            return;
        }
        if this_cpu.state().events_changed.get() {
            if !self.program(this_cpu, &local) {
                return;
            }
        } else if self.machine.hypervisor_mode {
            // A stop state of POWER9 may have damaged MMCR1 (`Documentation/internals.md`).
            Mmcr1::write(this_cpu.state().mmcr.get().mmcr1);
        }

        let mmcr = this_cpu.state().mmcr.get();
        let mmcra = Mmcra::from(mmcr.mmcra);
        let not_sampling = mmcra.with_const_sample_enable::<0>();
        not_sampling.write();

        let mut mmcr0 = Mmcr0::from(mmcr.mmcr0).alerting();
        if this_cpu.state().ebb.get() {
            mmcr0 = ebb::switch_in(self, this_cpu, &mmcr, mmcr0);
        } else if this_cpu.slots().iter().any(is_negative) {
            // `pmu_disable` dropped the alert, and POWER8 raises no other for a counter that is
            // negative already. Later processors do; then one PMI serves both.
            local.set_pmi_pending();
        }
        this_cpu.disabled.set(false);
        pmu::synchronize();
        mmcr0.write();
        if not_sampling != mmcra {
            // Start marking instructions only when the counters run.
            pmu::synchronize();
            mmcra.write();
        }
    }

    /// Turns this CPU's PMU on if that has not been done since the CPU came up.
    fn turn_on(&self, this_cpu: &ExclusiveCpu<'_>, local: &LocalPmu<'_>) {
        let came_up = self.hotplug.came_up(this_cpu.id());
        if came_up || !this_cpu.state().turned_on.get() {
            local.turn_on(self.is_v31());
            this_cpu.state().turned_on.set(true);
        }
    }

    /// Programs the frozen PMU with the events in the CPU's slots. Returns whether the PMU may be
    /// enabled.
    fn program(&self, this_cpu: &ExclusiveCpu<'_>, local: &LocalPmu<'_>) -> bool {
        let Some(assignment) = self.assignment(this_cpu) else {
            return false;
        };
        // EBB groups are exclusive: if one event is an EBB event, all are.
        let ebb_leader = this_cpu.slots().get(0).filter(|event| is_ebb(event));
        let ebb = ebb_leader.is_some();
        // First: a CPU that has come up since it was disabled may not be used until then.
        self.turn_on(this_cpu, local);
        branch::prepare_bhrb(self, this_cpu, local, &assignment.mmcr);
        this_cpu.state().mmcr.set(assignment.mmcr);
        this_cpu.mmcr0.set(assignment.mmcr.mmcr0);
        let had_ebb = this_cpu.state().ebb.replace(ebb);
        let unused_counters = unused_counters(&assignment);
        this_cpu.state().unused_counters.set(unused_counters);
        this_cpu.state().events_changed.set(false);

        // With EBE set alerts are no interrupts, so there are none to let through.
        local.set_prompt(!ebb && self.prompt);
        Mmcr1::write(assignment.mmcr.mmcr1);
        if self.is_v31() {
            Mmcr3::write(assignment.mmcr.mmcr3);
        }
        if let Some(leader) = ebb_leader {
            ebb::reset_at_first_schedule(self, this_cpu, leader);
            // The program can read the BHRB and all counters: leave nothing of others in them.
            branch::clear_bhrb(this_cpu, local);
        } else {
            Mmcr2::write(assignment.mmcr.mmcr2);
            // An idle state may have left anything there. Until an instruction is marked a sample
            // would show it.
            if Mmcra::from(assignment.mmcr.mmcra).sample_enable() == 1 {
                local.clear_siar_sdar();
            }
        }

        let events_with_counters = || {
            let counters = assignment.pmcs().iter().map(|pmc| pmc.index());
            this_cpu.slots().iter().zip(counters)
        };
        // Two passes: an event may get the counter that another one is leaving.
        for (event, index) in events_with_counters() {
            unload_counter(this_cpu, event, index);
        }
        for (event, index) in events_with_counters() {
            if counter(event).is_none() {
                load_counter(this_cpu, event, index, ebb);
            }
        }
        if ebb || had_ebb {
            clear_counters(unused_counters);
        }
        true
    }

    /// The assignment for the CPU's events.
    fn assignment(&self, this_cpu: &ExclusiveCpu<'_>) -> Option<Assignment> {
        // Without a transaction the events are what others left of a set that was found to fit.
        let assignment = self.assign(this_cpu);
        match assignment.or_else(|_| self.assign_rest(this_cpu)) {
            Ok(assignment) => Some(assignment),
            Err(refusal) => {
                // What is left of a set that fits always counts on, so this is a bug. The PMU stays
                // disabled.
                pr_err_once!("scheduled events do not fit: {}\n", refusal.reason());
                None
            }
        }
    }
}

/// Whether an event's counter is negative.
fn is_negative(event: &Event) -> bool {
    counter(event).is_some_and(|index| pmu::read_pmc(index) >= pmu::NEGATIVE)
}

/// Takes an event off its counter unless that is `index`, where it is to be from now on.
fn unload_counter(this_cpu: &ThisCpu<'_>, event: &Event, index: usize) {
    if let Some(old) = counter(event).filter(|&old| old != index) {
        count::read(this_cpu.irqs_off(), event);
        // In this order: a probe that reads the event in between must not take the 0 for a wrap.
        event.hw_mut(this_cpu.irqs_off()).set_idx(0);
        pmu::write_pmc(old, 0);
    }
}

/// Puts an event on the counter `index`.
fn load_counter(this_cpu: &ThisCpu<'_>, event: &Event, index: usize, ebb: bool) {
    let hw = event.hw_mut(this_cpu.irqs_off());
    let value = if ebb {
        ebb::initial_value(this_cpu, event)
    } else {
        let value = count::initial_value(this_cpu, event);
        hw.set_prev_count(value.into());
        value
    };
    pmu::write_pmc(index, value);
    // CAST: One of six counters.
    hw.set_idx(index as u8 + 1);
    hw.update_userpage();
}

/// The counters that no event is on, a bit each.
fn unused_counters(assignment: &Assignment) -> u8 {
    let used = assignment.pmcs().iter().map(|pmc| 1 << pmc.index());
    !used.fold(0, |all, bit: u8| all | bit)
}

/// Sets `counters` to 0.
fn clear_counters(counters: u8) {
    for index in 0..pmu::COUNTERS {
        if counters & 1 << index != 0 {
            pmu::write_pmc(index, 0);
        }
    }
}

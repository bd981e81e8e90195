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
        self,
        counter,
        is_ebb, //
    },
    Driver, //
};
use crate::{
    isa207::Assignment,
    perf::{
        CounterState,
        Event, //
    },
    power::{
        exec::current_program,
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
    #[inline]
    pub(super) fn pmu_disable(&self, this_cpu: &ExclusiveCpu) {
        if !this_cpu.disabled.get() {
            self.freeze(this_cpu);
        }
    }

    /// Freezes the PMU, which runs, and saves the program's registers.
    fn freeze(&self, this_cpu: &ExclusiveCpu) {
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

        let left = &this_cpu.state().left;
        if self.machine.hypervisor_mode {
            left.forget_mmcra();
        }
        // Stop marking instructions and, where MMCRA can tell it to, recording branches. For a
        // program that ended when MMCR0[PMAE] went off, and its BHRB is cleared when it comes back.
        let mmcra = Mmcra::from(this_cpu.state().mmcr.get().mmcra);
        let mut idle = mmcra.with_const_sample_enable::<0>();
        if is_v31 && program.is_none() {
            idle = idle.with_const_bhrbrd::<1>();
        }
        let changed = left.write_mmcra(idle);

        if let Some((mmcr0, mmcr2)) = program {
            if changed {
                // Before the registers are read that marked instructions set.
                pmu::synchronize();
            }
            ebb::switch_out(self, this_cpu, mmcr0, mmcr2);
        }
    }

    /// See [`crate::perf::Pmu::pmu_enable`].
    #[inline]
    pub(super) fn pmu_enable(&self, this_cpu: &ExclusiveCpu) {
        if !this_cpu.disabled.get() {
            return;
        }
        if this_cpu.slots().len() > 0 {
            self.run(this_cpu);
            return;
        }
        set_prompt(this_cpu, &local_pmu(this_cpu.irqs_off()), false);
        if this_cpu.state().ebb.replace(false) {
            let unused = this_cpu.state().unused_counters.get();
            this_cpu.state().left.add_stale(unused);
        }
    }

    /// Has the PMU, which is frozen, count the CPU's events.
    fn run(&self, this_cpu: &ExclusiveCpu) {
        let local = local_pmu(this_cpu.irqs_off());
        let left = &this_cpu.state().left;
        if self.machine.hypervisor_mode {
            left.forget_mmcra();
        }
        let negative = if this_cpu.state().events_changed.get() {
            // First: a CPU that has come up since it was disabled may not be used until then.
            self.turn_on(this_cpu, &local);
            let resumed = self.resume(this_cpu, &local);
            let Some(negative) = resumed.or_else(|| self.program(this_cpu, &local)) else {
                return;
            };
            negative
        } else {
            if self.machine.hypervisor_mode {
                // A stop state of POWER9 may have damaged MMCR1 (`Documentation/internals.md`).
                Mmcr1::write(this_cpu.state().mmcr.get().mmcr1);
            }
            let mut counters = this_cpu.slots().iter().filter_map(counter);
            counters.any(|index| pmu::read_pmc(index) >= pmu::NEGATIVE)
        };

        let mmcr = this_cpu.state().mmcr.get();
        let mmcra = Mmcra::from(mmcr.mmcra);
        let not_sampling = mmcra.with_const_sample_enable::<0>();
        left.write_mmcra(not_sampling);

        let mut mmcr0 = Mmcr0::from(mmcr.mmcr0).alerting();
        if this_cpu.state().ebb.get() {
            mmcr0 = ebb::switch_in(self, this_cpu, &mmcr, mmcr0);
        } else {
            // Only now: hardware may have set SDAR to an address of whatever ran while the PMU was
            // frozen, and a sample would show it if its instruction accesses no data.
            left.sampled.set(None);
            local.clear_siar_sdar();
            if negative {
                // `pmu_disable` dropped the alert, and POWER8 raises no other for a counter that is
                // negative already. Later processors do; then one PMI serves both.
                local.set_pmi_pending();
            }
        }
        left.start();
        this_cpu.disabled.set(false);
        pmu::synchronize();
        mmcr0.write();
        if mmcr0.pmao() == 1 {
            // `restore_pmao` may have raised the program's alert already. EBE must have taken
            // effect when interrupts are on, or that becomes an interrupt.
            pmu::synchronize();
        }
        if not_sampling != mmcra {
            // Start marking instructions only when the counters run.
            pmu::synchronize();
            left.write_mmcra(mmcra);
        }
    }

    /// Turns this CPU's PMU on if that has not been done since the CPU came up.
    fn turn_on(&self, this_cpu: &ExclusiveCpu, local: &LocalPmu<'_>) {
        let came_up = self.hotplug.came_up(this_cpu.id());
        if came_up || !this_cpu.state().turned_on.get() {
            local.turn_on(self.is_v31());
            this_cpu.state().turned_on.set(true);
            this_cpu.state().left.forget();
        }
    }

    /// Puts events back on the PMU that left it, if nobody has programmed it since. Returns whether
    /// a counter is negative; `None` if the PMU holds something else.
    fn resume(&self, this_cpu: &ExclusiveCpu, local: &LocalPmu<'_>) -> Option<bool> {
        let state = this_cpu.state();
        let left = &state.left;
        if !left.is_programmed(state.solved.get()) {
            return None;
        }
        let slots = || this_cpu.slots().iter();
        let ebb = slots().next().is_some_and(is_ebb);
        if ebb {
            let program = current_program();
            let stays = |event: &Event| {
                counter(event).is_some()
                    || left.is_from_here(this_cpu, event) && event::is_of(event, program)
            };
            if !slots().all(stays) {
                return None;
            }
        }
        let mut negative = false;
        for (event, index) in slots().zip(left.counters()) {
            if counter(event).is_some() {
                negative |= pmu::read_pmc(index) >= pmu::NEGATIVE;
            } else {
                if !ebb {
                    negative |= reload_counter(this_cpu, event, index) >= pmu::NEGATIVE;
                }
                place(this_cpu, event, index);
            }
        }
        left.take_stale();
        state.ebb.set(ebb);
        state.events_changed.set(false);
        if ebb {
            branch::clear_bhrb(this_cpu, local);
        } else {
            branch::clear_stale(this_cpu, local);
        }
        set_prompt(this_cpu, local, !ebb && self.prompt);
        Some(negative)
    }

    /// Programs the frozen PMU with the events in the CPU's slots. Returns whether a counter is
    /// negative; `None` if the PMU must stay disabled.
    #[inline(never)]
    fn program(&self, this_cpu: &ExclusiveCpu, local: &LocalPmu<'_>) -> Option<bool> {
        let assignment = self.assignment(this_cpu)?;
        let left = &this_cpu.state().left;
        let held_mmcr3 = left.is_known().then_some(this_cpu.state().mmcr.get().mmcr3);
        let solved = this_cpu.state().solved.get();
        left.programmed(
            solved.filter(|_| !self.machine.hypervisor_mode),
            &assignment,
        );
        // EBB groups are exclusive: if one event is an EBB event, all are.
        let ebb = this_cpu.slots().get(0).is_some_and(is_ebb);
        branch::prepare_bhrb(self, this_cpu, local, &assignment.mmcr);
        this_cpu.state().mmcr.set(assignment.mmcr);
        this_cpu.mmcr0.set(assignment.mmcr.mmcr0);
        if this_cpu.state().ebb.replace(ebb) {
            left.add_stale(this_cpu.state().unused_counters.get());
        }
        let unused_counters = unused_counters(&assignment);
        this_cpu.state().unused_counters.set(unused_counters);
        this_cpu.state().events_changed.set(false);

        // With EBE set alerts are no interrupts, so there are none to let through.
        set_prompt(this_cpu, local, !ebb && self.prompt);
        Mmcr1::write(assignment.mmcr.mmcr1);
        // Hardly any event uses it.
        if self.is_v31() && held_mmcr3 != Some(assignment.mmcr.mmcr3) {
            Mmcr3::write(assignment.mmcr.mmcr3);
        }
        if ebb {
            ebb::reset_at_first_schedule(self, this_cpu);
            // The program can read the BHRB, all counters and MMCRA's threshold counter: leave
            // nothing of others in them.
            branch::clear_bhrb(this_cpu, local);
            left.forget_mmcra();
        } else {
            Mmcr2::write(assignment.mmcr.mmcr2);
        }

        let events_with_counters = || {
            let counters = assignment.pmcs.iter().map(|pmc| pmc.index());
            this_cpu.slots().iter().zip(counters)
        };
        // Two passes: an event may get the counter that another one is leaving.
        for (event, index) in events_with_counters() {
            unload_counter(this_cpu, event, index);
        }
        let mut negative = false;
        for (event, index) in events_with_counters() {
            let value = if counter(event).is_some() {
                pmu::read_pmc(index)
            } else {
                load_counter(this_cpu, event, index, ebb)
            };
            negative |= value >= pmu::NEGATIVE;
        }
        // A program can read and write all. An idle state of POWER9 may leave anything: a negative
        // counter would raise an alert at once, and that sample an instruction of the kernel.
        let all = ebb || self.machine.hypervisor_mode;
        let stale = left.take_stale() | if all { !0 } else { 0 };
        clear_counters(unused_counters & stale);
        Some(negative)
    }

    /// The assignment for the CPU's events.
    fn assignment(&self, this_cpu: &ExclusiveCpu) -> Option<Assignment> {
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

/// Tells the kernel whether PMIs of this CPU are to be prompt, if it does not know.
fn set_prompt(this_cpu: &ExclusiveCpu, local: &LocalPmu<'_>, wanted: bool) {
    if this_cpu.state().prompt.replace(wanted) != wanted {
        local.set_prompt(wanted);
    }
}

/// Takes an event off its counter unless that is `index`, where it is to be from now on.
fn unload_counter(this_cpu: &ExclusiveCpu, event: &Event, index: usize) {
    if let Some(old) = counter(event).filter(|&old| old != index) {
        count::read(this_cpu.irqs_off(), event);
        // Before anything is written there: a probe that reads the event must not take that for a
        // wrap.
        event.hw_mut(this_cpu.irqs_off()).set_idx(0);
        this_cpu.state().left.add_stale(1 << old);
    }
}

/// Puts an event on the counter `index`. Returns the counter's value.
fn load_counter(this_cpu: &ThisCpu, event: &Event, index: usize, ebb: bool) -> u32 {
    let value = if ebb {
        ebb::initial_value(this_cpu, event)
    } else {
        count::initial_value(this_cpu, event)
    };
    let hw = event.hw_mut(this_cpu.irqs_off());
    hw.set_prev_count(value.into());
    pmu::write_pmc(index, value);
    place(this_cpu, event, index);
    value
}

/// Starts the counter `index` for an event that left it, where it stopped if it only counts.
/// Returns the counter's value.
fn reload_counter(this_cpu: &ExclusiveCpu, event: &Event, index: usize) -> u32 {
    let left = this_cpu.state().left.value(index);
    let hw = event.hw_mut(this_cpu.irqs_off());
    let counts_on = hw.state() == CounterState::Running && hw.sample_period() == 0;
    if counts_on && hw.prev_count() == left.into() {
        return left;
    }
    let value = count::initial_value(this_cpu, event);
    hw.set_prev_count(value.into());
    if value != left {
        pmu::write_pmc(index, value);
    }
    value
}

/// Notes that an event is on the counter `index`.
fn place(this_cpu: &ThisCpu, event: &Event, index: usize) {
    let hw = event.hw_mut(this_cpu.irqs_off());
    // CAST: One of six counters.
    hw.set_idx(index as u8 + 1);
    hw.update_userpage();
}

/// The counters that no event is on, a bit each.
fn unused_counters(assignment: &Assignment) -> u8 {
    let used = assignment.pmcs.iter().map(|pmc| 1 << pmc.index());
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

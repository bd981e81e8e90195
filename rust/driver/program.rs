// SPDX-License-Identifier: GPL-2.0

//! `pmu_disable` and `pmu_enable`: freezing a CPU's PMU, and programming it with the events that
//! `schedule.rs` added or deleted in between.

use super::{
    branch,
    counters::{
        clear_counters,
        load_counter,
        unload_counter, //
    },
    cpu_state::{
        local_pmu,
        ExclusiveCpu,
        ExclusiveState, //
    },
    ebb,
    event::{
        counter,
        is_ebb, //
    },
    Driver, //
};
use crate::{
    isa207::Mmcr,
    power::{
        pmu::{
            self,
            LocalPmu, //
        },
        regs::{
            Mmcr0,
            Mmcr1,
            Mmcr3,
            Mmcra, //
        }, //
    }, //
};

impl Driver {
    /// See [`crate::perf::Pmu::pmu_disable`].
    #[inline]
    pub(super) fn pmu_disable(&self, this_cpu: &ExclusiveCpu) {
        if !this_cpu.disabled.get() {
            self.freeze(this_cpu);
        }
    }

    /// As [`Driver::freeze`], for a CPU whose PMU was never turned on.
    #[cold]
    #[inline(never)]
    fn freeze_first(&self, this_cpu: &ExclusiveCpu) {
        self.turn_on(this_cpu);
        self.freeze(this_cpu);
    }

    /// Freezes the PMU, which runs, and saves the program's registers.
    #[inline(never)]
    fn freeze(&self, this_cpu: &ExclusiveCpu) {
        let (local, state) = (local_pmu(this_cpu.irqs_off()), this_cpu.state());
        this_cpu.disabled.set(true);
        // A CPU that came up again is still disabled.
        if !state.turned_on.get() {
            self.freeze_first(this_cpu);
            return;
        }
        if state.ebb.get() {
            let counts = state.counts_kernel.get();
            let (mmcr0, mmcr2) = if counts {
                local.freeze_program(self.is_v31())
            } else {
                local.freeze_idle_program(self.is_v31())
            };
            let stays = !counts && !self.machine.hypervisor_mode;
            state.left.set_mmcr2(stays.then_some(mmcr2));
            self.stop_sampling(this_cpu);
            ebb::switch_out(self, this_cpu, mmcr0, mmcr2);
        } else {
            local.freeze(self.is_v31());
            self.stop_sampling(this_cpu);
        }
    }

    /// Stops marking instructions and, where MMCRA can tell it to, recording branches.
    #[inline]
    fn stop_sampling(&self, this_cpu: &ExclusiveCpu) {
        let idle = Mmcra::from(this_cpu.state().idle_mmcra.get());
        if self.write_mmcra(this_cpu, idle) {
            // Before the registers are read, or written, that marked instructions set.
            pmu::synchronize();
        }
    }

    /// MMCRA for the PMU when it is frozen after it ran with `mmcra`. For a program (`ebb`)
    /// recording branches ended when MMCR0\[PMAE\] went off, and its BHRB is cleared when it comes
    /// back.
    pub(super) fn idle_mmcra(&self, mmcra: u64, ebb: bool) -> u64 {
        let idle = Mmcra::from(mmcra).with_const_sample_enable::<0>();
        if self.is_v31() && !ebb {
            idle.with_const_bhrbrd::<1>().into()
        } else {
            idle.into()
        }
    }

    /// Writes MMCRA unless it holds the value. Returns whether it did. On bare metal it may not
    /// hold what was written, after an idle state.
    #[inline]
    pub(super) fn write_mmcra(&self, this_cpu: &ExclusiveCpu, mmcra: Mmcra) -> bool {
        let left = &this_cpu.state().left;
        left.write_mmcra(mmcra, !self.machine.hypervisor_mode)
    }

    /// Writes MMCR2 unless it holds the value.
    #[inline]
    pub(super) fn write_mmcr2(&self, this_cpu: &ExclusiveCpu, mmcr2: u64) {
        let left = &this_cpu.state().left;
        left.write_mmcr2(mmcr2, !self.machine.hypervisor_mode);
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
        let state = this_cpu.state();
        set_prompt(this_cpu, &local_pmu(this_cpu.irqs_off()), false);
        if state.ebb.get() {
            ebb::save_sampled(self, this_cpu);
            end_program(state);
        }
    }

    /// Has the PMU, which is frozen, count the CPU's events.
    #[inline(never)]
    fn run(&self, this_cpu: &ExclusiveCpu) {
        let state = this_cpu.state();
        let is_first = || self.hotplug.came_up(this_cpu.id()) || !state.turned_on.get();
        if state.events_changed.get() && is_first() {
            self.run_first(this_cpu);
        } else if !self.is_intact(state) {
            self.run_after_loss(this_cpu);
        } else if !state.events_changed.get() {
            self.run_again(this_cpu);
        } else {
            self.run_changed(this_cpu);
        }
    }

    /// Returns whether the frozen PMU still holds what the driver programmed it with, as far as one
    /// register shows.
    ///
    /// The driver writes only what differs from what the PMU holds, and other code may change that
    /// without notice: a hypervisor that suspends the partition and resumes it on another machine
    /// (no CPU comes up then), xmon, the files of `CONFIG_PMU_SYSFS`, an image of a hibernation.
    /// On bare metal idle states lose registers, so the driver relies on none there. It does not
    /// look at registers that do not even hold what was written to them.
    #[inline]
    fn is_intact(&self, state: &ExclusiveState) -> bool {
        if self.machine.hypervisor_mode {
            return true;
        }
        let holds = match state.mmcr.get().mmcr1 {
            // A PMU that was reset has 0 there, too. But it is not closed to programs.
            0 => Mmcr0::read().is_closed(),
            mmcr1 => Mmcr1::read() == mmcr1,
        };
        holds || state.forgets_writes.get()
    }

    /// Programs a PMU again whose registers other code has changed. Counts since the events were
    /// last read are lost.
    #[cold]
    #[inline(never)]
    fn run_after_loss(&self, this_cpu: &ExclusiveCpu) {
        let state = this_cpu.state();
        for event in this_cpu.slots().iter() {
            // So that nothing is read from the counter that it was on.
            event.hw_mut(this_cpu.irqs_off()).set_idx(0);
        }
        state.unplaced.set(this_cpu.slots().len());
        // The program's registers are in its thread as they were when it was last saved. The BHRB
        // may hold branches that this kernel did not record.
        state.ebb.set(false);
        state.stale_branches.set(true);
        self.turn_on(this_cpu);
        let closed = Mmcr0::read().is_closed();
        self.run_saved(this_cpu);
        if !closed || Mmcr1::read() != state.mmcr.get().mmcr1 {
            // Nothing was lost: the registers do not read as they were written. Each start would
            // end here.
            state.forgets_writes.set(true);
        }
    }

    /// As [`Driver::run`], on a CPU that has come up since it was disabled: its PMU may not be used
    /// until it is turned on.
    #[cold]
    #[inline(never)]
    fn run_first(&self, this_cpu: &ExclusiveCpu) {
        self.turn_on(this_cpu);
        self.run_changed(this_cpu);
    }

    /// As [`Driver::run`], for other events than those that the PMU ran with before. Each way is a
    /// function of its own, as one that needs few registers need not save those of another.
    #[inline]
    fn run_changed(&self, this_cpu: &ExclusiveCpu) {
        let state = this_cpu.state();
        if state.unplaced.get() == 0 {
            self.run_rest(this_cpu);
        } else {
            self.run_others(this_cpu);
        }
    }

    /// As [`Driver::run_changed`], for events that come to the PMU, or to other counters.
    #[inline]
    pub(super) fn run_others(&self, this_cpu: &ExclusiveCpu) {
        if this_cpu.state().ebb.get() {
            self.run_after_program(this_cpu);
        } else {
            self.run_saved(this_cpu);
        }
    }

    /// As [`Driver::run_others`], if the PMU was not enabled since a program's events were on it.
    #[cold]
    #[inline(never)]
    fn run_after_program(&self, this_cpu: &ExclusiveCpu) {
        ebb::save_sampled(self, this_cpu);
        self.run_saved(this_cpu);
    }

    /// As [`Driver::run_others`], on a PMU from which all that belongs to a program was saved.
    #[inline(always)] // For the two above.
    fn run_saved(&self, this_cpu: &ExclusiveCpu) {
        let state = this_cpu.state();
        if !state.left.holds(this_cpu, state.solved.get()) {
            self.run_anew(this_cpu);
        } else if state.left.is_ebb() {
            self.resume_program(this_cpu);
        } else {
            self.resume(this_cpu);
        }
    }

    /// As [`Driver::run`], for the events that the PMU ran with before.
    #[inline(never)]
    pub(super) fn run_again(&self, this_cpu: &ExclusiveCpu) {
        let state = this_cpu.state();
        if self.machine.hypervisor_mode {
            // A stop state of POWER9 may have damaged MMCR1 (`Documentation/internals.md`).
            Mmcr1::write(state.mmcr.get().mmcr1);
        }
        // A program's alerts are in the MMCR0 that it gets back.
        if state.ebb.get() {
            let start = || self.start_program_again(this_cpu);
            self.emulator().switch_in(this_cpu, start);
            return;
        }
        // Their counters are those that were not unused when it was programmed.
        let unused = state.unused_counters.get();
        let mut counters = (0..pmu::COUNTERS).filter(|index| unused & 1 << index == 0);
        let negative = counters.any(|index| pmu::read_pmc(index) >= pmu::NEGATIVE);
        self.start_events(this_cpu, negative);
    }

    /// As [`Driver::run`], for events that the PMU is not programmed for.
    #[inline(never)]
    pub(super) fn run_anew(&self, this_cpu: &ExclusiveCpu) {
        let local = local_pmu(this_cpu.irqs_off());
        let Some(negative) = self.program(this_cpu, &local) else {
            return;
        };
        if this_cpu.state().ebb.get() {
            self.start_program(this_cpu);
        } else {
            self.start_events(this_cpu, negative);
        }
    }

    /// Turns this CPU's PMU on, after the CPU came up.
    #[cold]
    #[inline(never)]
    fn turn_on(&self, this_cpu: &ExclusiveCpu) {
        let state = this_cpu.state();
        self.hotplug.came_up(this_cpu.id());
        local_pmu(this_cpu.irqs_off()).turn_on(self.is_v31());
        state.turned_on.set(true);
        state.left.forget();
        state.mmcr.set(Mmcr::default());
        state.forgets_writes.set(false);
        state.idle_mmcra.set(self.idle_mmcra(0, state.ebb.get()));
    }

    /// Leaves a program whose EBB group gets on the PMU nothing of others in the BHRB, which it can
    /// read, nor in its task's registers.
    pub(super) fn clear_for_program(&self, this_cpu: &ExclusiveCpu, local: &LocalPmu<'_>) {
        ebb::reset_at_first_schedule(self, this_cpu);
        branch::clear_bhrb(this_cpu, local);
    }

    /// Programs the frozen PMU with the events in the CPU's slots. Returns whether a counter is
    /// negative; `None` if the PMU must stay disabled.
    #[inline]
    fn program(&self, this_cpu: &ExclusiveCpu, local: &LocalPmu<'_>) -> Option<bool> {
        let Some(assignment) = self.assignment(this_cpu) else {
            // If events of a program were on it before, what is its own was saved.
            if this_cpu.state().ebb.get() {
                end_program(this_cpu.state());
            }
            return None;
        };
        let all_come = this_cpu.state().unplaced.get() == this_cpu.slots().len();
        let left = &this_cpu.state().left;
        let held_mmcr3 = left.is_known().then_some(this_cpu.state().mmcr.get().mmcr3);
        let was_ebb = left.is_ebb();
        let solved = this_cpu.state().solved.get();
        // EBB groups are exclusive: if one event is an EBB event, all are.
        let ebb = this_cpu.slots().get(0).is_some_and(is_ebb);
        // On bare metal idle states lose what is left.
        let stays = solved.filter(|_| !self.machine.hypervisor_mode);
        let solved_groups = &this_cpu.state().solved_groups;
        let as_asked = solved.is_some_and(|solved| solved_groups.is_as_asked(solved));
        this_cpu.state().as_asked.set(as_asked);
        left.programmed(this_cpu, stays, &assignment, stays.is_some() && as_asked);
        if this_cpu.state().ebb.replace(ebb) {
            left.add_stale(this_cpu.state().unused_counters.get());
        }
        self.set_images(this_cpu, local, &assignment);
        let unused_counters = this_cpu.state().unused_counters.get();

        // With EBE set alerts are no interrupts, so there are none to let through.
        set_prompt(this_cpu, local, !ebb && self.prompt);
        Mmcr1::write(assignment.mmcr.mmcr1);
        // Hardly any event uses it.
        if self.is_v31() && held_mmcr3 != Some(assignment.mmcr.mmcr3) {
            Mmcr3::write(assignment.mmcr.mmcr3);
        }
        if was_ebb {
            // A program may have written the threshold counter, which weights would show and the
            // next program can read. Other events change it only by a threshold: then MMCRA is
            // written for want of that one, or as these have one, too (`Driver::start`).
            left.forget_mmcra();
        }
        if ebb {
            self.clear_for_program(this_cpu, local);
        } else {
            self.write_mmcr2(this_cpu, assignment.mmcr.mmcr2);
        }

        let events_with_counters = || {
            let counters = assignment.pmcs.iter().map(|pmc| pmc.index());
            this_cpu.slots().iter().zip(counters)
        };
        // Two passes: an event may get the counter that another one is leaving.
        if !all_come {
            for (event, index) in events_with_counters() {
                unload_counter(this_cpu, event, index);
            }
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
}

/// Of a program whose events are off the PMU and whose registers are saved its counters are left.
fn end_program(state: &ExclusiveState) {
    state.ebb.set(false);
    state.left.add_stale(state.unused_counters.get());
}

/// Tells the kernel whether PMIs of this CPU are to be prompt, if it does not know.
pub(super) fn set_prompt(this_cpu: &ExclusiveCpu, local: &LocalPmu<'_>, wanted: bool) {
    let told = &this_cpu.state().prompt;
    if told.get() != wanted {
        told.set(wanted);
        local.set_prompt(wanted);
    }
}

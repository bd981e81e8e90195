// SPDX-License-Identifier: GPL-2.0

//! `pmu_disable` and `pmu_enable`: freezing a CPU's PMU, and starting it with the events that
//! `schedule.rs` added or deleted in between.
//!
//! `pmu_enable` takes the same steps for all events. It computes everything that the PMU must hold
//! (the [`Image`], and a value for each counter). Then it writes only those registers that do not
//! hold their value yet, according to the [`PmuCache`](crate::power::cache::PmuCache). So few
//! writes are needed when a task returns to the PMU, or when some events continue while others are
//! removed.
//!
//! Programs cannot read the registers of the frozen PMU: MMCR0\[PMCC\] denies them access. A
//! program that gets access with its EBB group finds its own value or 0 in each register.

use super::event::{
    is_ebb,
    Event, //
};
use super::{
    branch,
    count,
    cpu_state::{
        local_pmu,
        ExclusiveCpu, //
    },
    event::counter,
    image::Image,
    Driver, //
};
use crate::{
    isa207::{
        Isa,
        COUNTERS, //
    },
    power::{
        cache::ProgramId,
        exec::current_program,
        machine,
        pmu::{
            self,
            LocalPmu, //
        },
        regs::{
            Bescr,
            Mmcr0,
            Mmcr1,
            Mmcr2,
            Mmcr3,
            Mmcra, //
        },
        thread::CurrentThread, //
    }, //
};

/// The set of all counters, one bit each.
const ALL_COUNTERS: u8 = (1 << COUNTERS) - 1;

impl Driver {
    /// Freezes the PMU of this CPU; perf core's callback
    /// [`pmu_disable`](crate::perf::Pmu::pmu_disable).
    #[inline]
    pub(super) fn pmu_disable(&self, this_cpu: &ExclusiveCpu) {
        if !this_cpu.enabled.replace(false) {
            return;
        }
        let (local, state) = (local_pmu(this_cpu.irqs_off()), this_cpu.state());
        // This is the image of the events that ran: perf core adds and deletes events only after
        // this call.
        let (cache, image) = (&state.cache, state.image.get());

        // 1. Freeze the counters and deny programs access to the PMU.
        let (mmcr0, mmcr2) = if image.is_ebb {
            let counts_kernel = image.counts_kernel(self.platform);
            cache.freeze_ebb_group(&local, self.is_v31(), counts_kernel)
        } else {
            (local.freeze(self.is_v31()), 0)
        };

        // 2. Stop marking instructions before any code reads or writes the registers that marked
        //    instructions set. Stop recording branches where MMCRA controls that. For a program
        //    this is not needed, because MMCR0[PMAE] stops the recording, too.
        let running = Mmcra::from(image.mmcr().mmcra);
        let mut idle = running.with_const_sample_enable::<0>();
        if self.is_v31() && !image.is_ebb {
            idle = idle.with_const_bhrbrd::<1>();
        }
        if u64::from(idle) != running.into() {
            cache.write::<Mmcra>(idle.into());
            pmu::synchronize();
        }
        if image.mmcr().has_threshold() {
            // The threshold counter in MMCRA counts even while the PMU is frozen.
            cache.forget_mmcra();
        }

        // 3. Save the program's registers. Its task is still the current one: perf core disables
        //    the PMU to remove the events before the kernel switches to another task.
        if image.is_ebb {
            let thread = CurrentThread::new(&local);
            thread.save_mmcr0(mmcr0);
            // Remove the bits that `exclude_user` of an event set: the program's next group may
            // have no such event.
            thread.save_mmcr2(mmcr2 & !image.mmcr().mmcr2);
            thread.save_sampled_registers(cache, self.register_set, image.mmcr().mmcr3);
            self.emulator().switch_out(this_cpu, mmcr0);
        }
    }

    /// Starts the PMU of this CPU; perf core's callback
    /// [`pmu_enable`](crate::perf::Pmu::pmu_enable).
    #[inline]
    pub(super) fn pmu_enable(&self, this_cpu: &ExclusiveCpu) {
        // A PMU without events is not started.
        if this_cpu.slots().len() == 0 {
            set_prompt_pmis(this_cpu, false);
            if self.platform.hypervisor_mode {
                // The CPU may enter an idle state, which loses the contents of the PMU's registers.
                this_cpu.state().cache.forget();
            }
        } else if !this_cpu.enabled.get() {
            self.start_pmu(this_cpu);
        }
    }

    /// Starts the disabled PMU with the events in the CPU's slots.
    fn start_pmu(&self, this_cpu: &ExclusiveCpu) {
        let (local, state) = (local_pmu(this_cpu.irqs_off()), this_cpu.state());
        let (slots, cache) = (this_cpu.slots(), &state.cache);

        // 1. Turn the PMU on if this CPU came up, or if other code changed the registers. In the
        //    second case, events that were on the PMU lose their counts since the last read.
        if self.platform.hypervisor_mode {
            cache.forget_values();
        }
        let came_up = self.hotplug.test_and_clear_came_up(this_cpu.id());
        let was_lost = !came_up && !cache.is_intact();
        if came_up || was_lost {
            local.turn_on(self.is_v31());
            cache.forget();
            state.stale_branches.set(true);
            for event in slots.iter() {
                event.hw_mut(this_cpu.irqs_off()).set_idx(0);
            }
        }

        // 2. Find the image of the events. `commit_txn` stored it, unless the slots now have fewer
        //    events than the last image.
        if !state.image_events.are(slots) {
            self.set_remaining_image(this_cpu);
        }
        let image = state.image.get();
        let program = slots
            .get(0)
            .filter(|_| image.is_ebb)
            .map(|event| ProgramId {
                event: event.id(),
                execs: current_program(),
            });
        let is_same_program = cache.hand_over(program);

        // 3. Load the counters, also those without an event.
        let negative = load_counters(this_cpu, &image);
        cache.clear_unused_pmcs(ALL_COUNTERS & !image.pmcs().as_set(), is_same_program);

        // 4. Write the control registers, except for MMCR0, MMCRA[SAMPLE_ENABLE], and the bits of
        //    MMCR2 that belong to a program.
        cache.write::<Mmcr1>(image.mmcr().mmcr1);
        if was_lost {
            cache.test_writes();
        }
        if self.is_v31() {
            cache.write::<Mmcr3>(image.mmcr().mmcr3);
        }
        let mmcra = Mmcra::from(image.mmcr().mmcra);
        cache.write::<Mmcra>(mmcra.with_const_sample_enable::<0>().into());

        // 5. Clear the BHRB if it holds branches that must not be seen. Store the values for the
        //    PMI handler.
        prepare_bhrb(self.model.isa(), this_cpu, &local, &image);
        let mut mmcr0 = Mmcr0::from(image.mmcr().mmcr0).alerting();
        this_cpu.mmcr0.set(mmcr0.into());
        // With EBE set, alerts raise no PMI.
        set_prompt_pmis(this_cpu, self.wants_prompt_pmis && !image.is_ebb);

        // 6. Restore the program's registers. Without a program, clear SIAR and SDAR: a sample
        //    would show them until the next alert.
        if image.is_ebb {
            let user = self.restore_program_registers(this_cpu, &image);
            mmcr0 = mmcr0.for_ebb(machine::has_bhrb()).with_program(user);
        } else {
            cache.write::<Mmcr2>(image.mmcr().mmcr2);
            local.clear_siar_sdar();
            if negative {
                // `pmu_disable` dropped the alert, and POWER8 raises no second alert for a counter
                // that is already negative. Later processors do; then one PMI serves both alerts.
                local.set_pmi_pending();
            }
        }

        // 7. Start the PMU.
        this_cpu.enabled.set(true);
        let marks_instructions = mmcra.sample_enable() == 1;
        if marks_instructions && !image.is_ebb {
            // A PMI before step 8 clears SIAR would report SIAR's value as a marked instruction.
            local.delay_pmis();
        }
        pmu::synchronize();
        mmcr0.write();
        if mmcr0.ebe() == 1 && mmcr0.pmao() == 1 {
            // The program's alert may occur at once; on POWER8E `restore_pmao` raises it. EBE must
            // have taken effect when interrupts are turned on, or the alert raises a PMI.
            pmu::synchronize();
        }

        // 8. Start marking instructions. The counters must run before that.
        if marks_instructions {
            pmu::synchronize();
            cache.write::<Mmcra>(mmcra.into());
            if !image.is_ebb {
                // Until now the PMU may have sampled any instruction, and a sample would show it as
                // a marked one. A program keeps its own values.
                pmu::synchronize();
                local.clear_sampled_registers(self.register_set);
            }
        }
        cache.record_start(image.pmcs().as_set());
    }

    /// Computes and stores the image of the events that remain after others were removed. They keep
    /// their counters.
    fn set_remaining_image(&self, this_cpu: &ExclusiveCpu) {
        let (state, image) = (this_cpu.state(), this_cpu.state().image.get());
        // The events in the slots are a subset of the last image's events, in the same order: a
        // transaction either stores its own events in the image, or finds them at its start.
        let mut all = state.image_events.iter().zip(image.pmcs().iter());
        let slots = this_cpu.slots().iter();
        let remaining = slots.filter_map(|event| all.find(|((id, _), _)| *id == event.id()));
        let placed = (0..COUNTERS).zip(remaining).map(|(index, (event, pmc))| {
            // `all` has already passed this position, so the write changes no later read.
            state.image_events.put(index, event);
            (event.1, pmc)
        });
        let assignment = self.model.assign_remaining(placed);
        state.image.set(Image::new(assignment, image.is_ebb));
    }

    /// Restores the program's registers except MMCR0. Returns the program's bits of MMCR0.
    #[inline]
    fn restore_program_registers(&self, this_cpu: &ExclusiveCpu, image: &Image) -> Mmcr0 {
        let (local, cache) = (local_pmu(this_cpu.irqs_off()), &this_cpu.state().cache);
        self.reset_at_first_schedule(this_cpu);
        self.emulator().switch_in(this_cpu);
        let thread = CurrentThread::new(&local);
        // With BESCR[GE] off, the program's handler already has this alert, or the program turned
        // EBBs off. In the second case a later call raises the alert, when EBBs are on again.
        if machine::has_pmao_bug() && thread.mmcr0().pmao() == 1 && Bescr::read().ge() == 1 {
            // On POWER8E, writing PMAO raises no alert.
            local.restore_pmao();
            cache.forget_sampled_registers();
        }
        thread.restore_sampled_registers(cache, self.register_set);
        // The program's bits freeze counters in addition to the bits of the events. In a partition
        // the bit of `exclude_user` is one of the program's: a program that clears it counts its
        // own execution until the next switch.
        cache.write::<Mmcr2>(image.mmcr().mmcr2 | thread.mmcr2());
        thread.mmcr0()
    }

    /// Resets the current task's saved state unless the task has an open EBB event that was on any
    /// CPU's PMU before.
    ///
    /// If there is no such event, the state may come from the parent, by fork, or from events that
    /// were closed. If there is one, the state is the task's own: it was reset when the first such
    /// event was scheduled, and `execve` resets it for the new program. The state belongs to the
    /// task and not to a group. So another group of the task uses the same state, and it is kept
    /// for the first group.
    ///
    /// A context with an EBB event belongs to one task: perf core swaps the contexts of two tasks
    /// only if one inherited all events of the other, and EBB events cannot be inherited.
    fn reset_at_first_schedule(&self, this_cpu: &ExclusiveCpu) {
        let never_scheduled = |event: &Event| event.data().never_scheduled.get();
        // This check avoids a search through the task's other events.
        if !this_cpu.slots().iter().any(never_scheduled) {
            return;
        }
        let was_scheduled = |event: &Event| is_ebb(event) && !never_scheduled(event);
        if !this_cpu.task_events().any(was_scheduled) {
            CurrentThread::new(&local_pmu(this_cpu.irqs_off())).reset();
            self.emulator().test_pmi_under_ebe(this_cpu);
        }
        // Include disabled siblings: when the leader is closed, each sibling becomes a leader.
        for event in this_cpu.slots().iter().chain(this_cpu.first_group()) {
            event.data().never_scheduled.set(false);
        }
    }
}

/// Loads the counter of each event, unless the event is on the counter already. Returns whether the
/// counter of such an event is negative.
#[inline]
fn load_counters(this_cpu: &ExclusiveCpu, image: &Image) -> bool {
    let cache = &this_cpu.state().cache;
    let mut negative = false;
    for (event, pmc) in this_cpu.slots().iter().zip(image.pmcs().iter()) {
        let index = pmc.index();
        if counter(event).is_some() {
            negative |= !image.is_ebb && pmu::read_pmc(index) >= pmu::NEGATIVE;
            continue;
        }
        let value = if image.is_ebb {
            count::program_value(this_cpu.irqs_off(), event)
        } else {
            count::start_value(this_cpu, event, cache.pmc(index))
        };
        cache.write_pmc(index, value);
        let hw = event.hw_mut(this_cpu.irqs_off());
        hw.set_prev_count(value.into());
        // CAST: `index` is at most 5.
        hw.set_idx(index as u8 + 1);
        hw.update_userpage();
    }
    negative
}

/// Turns prompt PMIs of this CPU on or off, if `wanted` changed.
fn set_prompt_pmis(this_cpu: &ExclusiveCpu, wanted: bool) {
    if this_cpu.state().prompt_pmis.replace(wanted) != wanted {
        local_pmu(this_cpu.irqs_off()).set_prompt_pmis(wanted);
    }
}

/// Records what the BHRB will hold while the PMU runs with `image`. Clears the BHRB if it holds
/// branches that an event's owner must not see, or that were recorded with a different filter.
fn prepare_bhrb(isa: Isa, this_cpu: &ExclusiveCpu, local: &LocalPmu<'_>, image: &Image) {
    this_cpu.ifm.set(image.mmcr().ifm());
    let hypervisor = image.mmcr().records_hypervisor(isa);
    let had_hypervisor = this_cpu.hypervisor_branches.replace(hypervisor);
    // Branches are also stale if the filter changed: only events with a branch stack or EBBs change
    // it, and `note_event_change` records that.
    let stale = this_cpu.state().stale_branches.replace(false);
    if stale || had_hypervisor && !hypervisor {
        branch::clear_bhrb(this_cpu, local);
    }
}

// SPDX-License-Identifier: GPL-2.0

//! Event-based branches: the rules for events, and switching a program's PMU state.
//!
//! While an EBB group is on the PMU, the program owns PMC1 to PMC6 and the bits of MMCR0 and MMCR2
//! that problem state can write. The kernel only saves and restores them at context switches. The
//! architecture's code switches BESCR, EBBHR and EBBRR.
//!
//! Power ISA, Book II, chapter "Event-Based Branch Facility";
//! `Documentation/arch/powerpc/pmu-ebb.rst` of the kernel.
//!
//! An alert that the program cannot take at once stays in MMCR0\[PMAO\], which is saved and
//! restored like the rest.

use super::{
    cpu_state::{
        local_pmu,
        ExclusiveCpu,
        ThisCpu, //
    },
    event::{
        self,
        is_ebb, //
    },
    refusal::Refusal,
    Driver, //
};
use crate::{
    perf::{
        Event,
        NewEvent,
        SampleType, //
    },
    power::{
        exec::current_program,
        machine,
        pmu,
        regs::{
            Bescr,
            Mmcr0, //
        },
        thread::CurrentThread, //
    }, //
};

/// Checks the rules for EBB events. Those about scheduling hold for the leader, and so for the
/// group.
pub(super) fn check(event: &NewEvent<'_>) -> Result<(), Refusal> {
    // A leader of another PMU, such as a software event, is no EBB event.
    let ebb_leader = event.leader().filter(|leader| is_ebb(leader));
    if ebb_leader.is_some() != is_ebb(event) {
        return Err(Refusal::EbbMixed);
    }
    let Some(leader) = ebb_leader else {
        return Ok(());
    };
    let (attr, leader) = (event.attr(), leader.attr());
    require(event.follows_task(), Refusal::EbbWithoutTask)?;
    require(leader.pinned(), Refusal::EbbNotPinned)?;
    require(leader.exclusive(), Refusal::EbbNotExclusive)?;
    require(!attr.freq(), Refusal::EbbFreq)?;
    require(!attr.inherit(), Refusal::EbbInherit)?;
    let samples_nothing = attr.sample_type() == SampleType::empty();
    require(samples_nothing, Refusal::EbbSampleType)?;
    require(attr.sample_period() == 0, Refusal::EbbSamplePeriod)?;
    require(!attr.enable_on_exec(), Refusal::EbbEnableOnExec)?;
    require(!event::counts_nothing(event), Refusal::EbbExcludeHost)
}

/// Refuses an event that does not keep a rule.
#[inline(always)]
fn require(kept: bool, refusal: Refusal) -> Result<(), Refusal> {
    if kept {
        Ok(())
    } else {
        Err(refusal)
    }
}

/// Resets the current task's saved state unless the task has an EBB event open that was on a PMU
/// before, on whichever CPU.
///
/// Without such an event the state may stem from the parent, by fork, or from events that were
/// closed. With one it is the task's own: it was reset when the first such event was scheduled, and
/// `execve` resets it for the new program. It belongs to the task rather than to a group, so
/// another group of the task finds it, and leaves it to the first one.
///
/// A context with an EBB event belongs to one task: perf core swaps the contexts of two tasks only
/// if one inherited all events of the other, and EBB events cannot be inherited.
pub(super) fn reset_at_first_schedule(driver: &Driver, this_cpu: &ExclusiveCpu) {
    // Whether all events on the PMU were there before, which spares a look at the task's others.
    if !this_cpu.slots().iter().any(event::is_never_scheduled) {
        return;
    }
    let was_scheduled = |event: &Event| is_ebb(event) && !event::is_never_scheduled(event);
    if !this_cpu.task_events().any(was_scheduled) {
        CurrentThread::new(&local_pmu(this_cpu.irqs_off())).reset();
        driver.emulator().test_pmi_under_ebe(this_cpu);
    }
    // Disabled siblings too: when the leader is closed, each leads itself.
    for event in this_cpu.slots().iter().chain(this_cpu.first_group()) {
        event::clear_never_scheduled(this_cpu, event);
    }
}

/// Saves what freezing the PMU changes of the program's state: MMCR0 and MMCR2, which were `mmcr0`
/// and `mmcr2` before. The rest stays in the frozen PMU until [`save_sampled`], or until the
/// program goes on with the events that stay.
#[inline]
pub(super) fn switch_out(driver: &Driver, this_cpu: &ExclusiveCpu, mmcr0: Mmcr0, mmcr2: u64) {
    let local = local_pmu(this_cpu.irqs_off());
    let thread = CurrentThread::new(&local);
    thread.save_mmcr0(mmcr0);
    // The program's bits, without those that an event set (`exclude_user`): the next group may have
    // none that does.
    thread.save_mmcr2(mmcr2 & !this_cpu.state().mmcr.get().mmcr2);
    driver.emulator().switch_out(this_cpu, mmcr0);
}

/// Saves the rest of the program's state, as its events have left the PMU, or others come to it.
/// The program's task is still the current one: perf core enables a PMU that it has disabled before
/// the kernel switches to another task.
#[inline]
pub(super) fn save_sampled(driver: &Driver, this_cpu: &ExclusiveCpu) {
    let (local, state) = (local_pmu(this_cpu.irqs_off()), this_cpu.state());
    let mmcr3 = state.mmcr.get().mmcr3;
    let sampled = CurrentThread::new(&local).save_sampled(driver.register_set, mmcr3);
    state.left.sampled.set(Some(sampled));
}

/// Whether the alert in the program's saved MMCR0 has to be raised, as writing PMAO does not.
#[inline]
pub(super) fn must_raise(this_cpu: &ExclusiveCpu) -> bool {
    let user = CurrentThread::new(&local_pmu(this_cpu.irqs_off())).mmcr0();
    // Only with GE on: with GE off the program's handler has this alert already.
    user.pmao() == 1 && Bescr::read().ge() == 1 && machine::has_pmao_bug()
}

/// Restores the program's state except MMCR0. `stays`: what [`save_sampled`] saves has not left the
/// PMU, as its events have not. Returns the program's bits of MMCR0.
///
/// Those bits of MMCR2 that the program can write freeze counters. They are added to the kernel's.
/// In a partition the one that stands for `exclude_user` is such a bit: a program that clears it
/// counts itself until the next switch.
#[inline(always)] // For the way back, which is most of the calls.
pub(super) fn switch_in(driver: &Driver, this_cpu: &ExclusiveCpu, stays: bool) -> Mmcr0 {
    let local = local_pmu(this_cpu.irqs_off());
    let (thread, state) = (CurrentThread::new(&local), this_cpu.state());
    if !stays {
        let held = state.left.sampled.take();
        let is_held = !driver.machine.hypervisor_mode;
        thread.restore(driver.register_set, held.filter(|_| is_held));
    }
    driver.write_mmcr2(this_cpu, state.mmcr.get().mmcr2 | thread.mmcr2());
    thread.mmcr0()
}

/// Restores what [`save_sampled`] saves, whatever the PMU holds.
pub(super) fn restore_sampled(driver: &Driver, this_cpu: &ExclusiveCpu) {
    let local = local_pmu(this_cpu.irqs_off());
    CurrentThread::new(&local).restore(driver.register_set, None);
}

/// The value to start an event's counter with: what its program left there, but nothing negative of
/// the program before the last `execve`. That enabled alerts, and the new program would get the old
/// one's.
pub(super) fn initial_value(this_cpu: &ThisCpu, event: &Event) -> u32 {
    // CAST: `count::read` stored the counter's value.
    let value = event.hw().prev_count() as u32;
    if event::is_new_to(this_cpu, event, current_program()) && value >= pmu::NEGATIVE {
        0
    } else {
        value
    }
}

/// Has the counters of the events on this CPU's PMU hold no more of the old program, at `execve`,
/// than they would if the events were off it.
pub(super) fn discard_alerts(this_cpu: &ExclusiveCpu) {
    for event in this_cpu.slots().iter() {
        event::is_new_to(this_cpu, event, current_program());
    }
    // MMCRA's threshold counter is the old program's, too.
    this_cpu.state().left.forget_mmcra();
    let unused = this_cpu.state().unused_counters.get();
    for index in 0..pmu::COUNTERS {
        if unused & 1 << index != 0 || pmu::read_pmc(index) >= pmu::NEGATIVE {
            pmu::write_pmc(index, 0);
        }
    }
}

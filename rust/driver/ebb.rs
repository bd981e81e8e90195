// SPDX-License-Identifier: GPL-2.0

//! Event Based Branches: their rules, and how a program's PMU state comes and goes with it.
//!
//! While an EBB group is on the PMU, the program owns PMC1 to PMC6 and its view of MMCR0 and MMCR2.
//! The kernel only keeps them over context switches, and takes the PMU back with the last event.
//! BESCR, EBBHR and EBBRR are switched by the architecture's code.
//!
//! Power ISA, Book II, chapter "Event-Based Branch Facility"; `Documentation/arch/powerpc/pmu-ebb.rst` of the kernel.
//!
//! An alert that the program cannot take at once waits in MMCR0\[PMAO\], which comes and goes with
//! the program too. `alert.rs` is about machines that do not manage that.

use super::{
    alert,
    is_ebb,
    local_pmu,
    refuse::Refusal,
    CpuState,
    Driver,
    Here, //
};
use crate::{
    isa207::Mmcr, //
    perf::{
        CpuContexts,
        Event,
        NewEvent, //
    },
    power::{
        exec::OnExec,
        machine,
        pmu::LocalPmu,
        regs::{
            Bescr,
            Mmcr0,
            Mmcr2, //
        },
        thread::CurrentThread, //
    },
};
use kernel::sync::Arc;

/// The event has not been on a PMU yet (a flag of ours in `struct hw_perf_event`).
const NEW: u32 = 1 << 0;

/// Checks the rules for EBB events, which are those of the leader for a whole group.
pub(super) fn check(event: &NewEvent<'_>) -> Result<(), Refusal> {
    // A leader of another PMU, such as a software event, is no EBB event.
    let ebb_leader = event.leader().filter(|leader| is_ebb(leader));
    if ebb_leader.is_some() != is_ebb(event) {
        return Err(Refusal::EbbMixed);
    }
    let Some(leader) = ebb_leader else {
        return Ok(());
    };
    let attr = event.attr();
    let rules = [
        (event.follows_task(), Refusal::EbbWithoutTask),
        (leader.attr().pinned(), Refusal::EbbNotPinned),
        (leader.attr().exclusive(), Refusal::EbbNotExclusive),
        (!attr.freq(), Refusal::EbbFreq),
        (!attr.inherit(), Refusal::EbbInherit),
        (attr.sample_type() == 0, Refusal::EbbSampleType),
        (attr.sample_period() == 0, Refusal::EbbSamplePeriod),
        (!attr.enable_on_exec(), Refusal::EbbEnableOnExec),
    ];
    match rules.iter().find(|(kept, _)| !kept) {
        Some(&(_, refusal)) => Err(refusal),
        None => Ok(()),
    }
}

/// Marks an event that is being opened.
pub(super) fn mark_new(event: &NewEvent<'_>) {
    event.hw().set_flags(event, event.hw().flags() | NEW);
}

/// Deals with an EBB group that is about to run: one that never did starts from a clean state,
/// whatever the task or its parent had before.
pub(super) fn begin(here: &Here<'_>, leader: &Event) {
    let new = leader.hw().flags() & NEW != 0;
    // Of all, as any of them leads the others when the leader is closed.
    for event in here.slots().iter() {
        event.hw().set_flags(here, event.hw().flags() & !NEW);
    }
    if new {
        CurrentThread::new(&local_pmu(here)).reset();
        alert::probe(here);
    }
}

/// Saves the program's state from a PMU that is stopped now and had `mmcr0` before.
pub(super) fn switch_out(driver: &Driver, here: &Here<'_>, mmcr0: Mmcr0) {
    let local = local_pmu(here);
    let mmcr0 = alert::leave(here, local.when_frozen(mmcr0));
    let mmcr3 = here.mmcr.get().mmcr3;
    CurrentThread::new(&local).save(driver.registers(), mmcr0, mmcr3);
}

/// Restores the program's state; returns MMCR0 with which the PMU is to start, made of the kernel's
/// (`mmcr0`) and the program's.
///
/// What the program may set of MMCR2 only freezes counters, so the kernel's value (for
/// `exclude_user` and the like) cannot be undone by it.
pub(super) fn switch_in(driver: &Driver, here: &Here<'_>, mmcr: &Mmcr, mmcr0: Mmcr0) -> Mmcr0 {
    let local = local_pmu(here);
    let thread = CurrentThread::new(&local);
    // Before the program's registers are there, as an alert changes SIAR and SDAR.
    let user = alert::enter(here, thread.mmcr0());
    // Only with EBBs on: in its handler the program has the alert already.
    if user.pmao() == 1 && Bescr::read().ge() == 1 && machine::forgets_alerts() {
        local.raise_again();
    }
    thread.restore(driver.registers());
    Mmcr2::write(mmcr.mmcr2 | thread.mmcr2());
    mmcr0.for_ebb(user)
}

/// Gives a task that begins another program a clean state: no handler, EBBs off, and no bits of the
/// old program's in MMCR0 and MMCR2. Events that it keeps go on for the new program.
pub(super) struct NewProgram {
    driver: Arc<Driver>,
    cpus: Arc<CpuContexts<CpuState>>,
}

impl NewProgram {
    pub(super) fn new(driver: Arc<Driver>, cpus: Arc<CpuContexts<CpuState>>) -> Self {
        Self { driver, cpus }
    }
}

impl OnExec for NewProgram {
    fn exec(&self, local: &LocalPmu) {
        // SAFETY: Interrupts are off as long as there is a `LocalPmu`. PM interrupts leave alone what
        // is changed while the PMU is stopped.
        let Some(here) = (unsafe { self.cpus.this_cpu() }) else {
            return;
        };
        let in_use = here.slots().len() > 0;
        let on_pmu = in_use && Mmcr0::read().ebe() == 1;
        if on_pmu {
            self.driver.stop_pmu(&here);
        }
        CurrentThread::new(local).begin_program();
        if in_use {
            // Of the old program's branches none is the new one's, nor are their targets in it.
            local.clear_bhrb();
        }
        if on_pmu {
            self.driver.start_pmu(&here);
        }
    }
}

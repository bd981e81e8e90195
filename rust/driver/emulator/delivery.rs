// SPDX-License-Identifier: GPL-2.0

//! PMIs under EBE, and alerts that the program cannot take at once.
//!
//! An alert that the program is owed is delivered by raising another one, in the kernel and with
//! BESCR\[GE\] and \[PME\] on ([`latch_ebb`]): QEMU latches the EBB, and branches as soon as the program
//! goes on, whatever way it came into the kernel. The latch is one bit, so raising twice does no harm.
//!
//! QEMU would give a latched EBB to whichever program with GE on runs next. Clear PMEO on switch-out,
//! so that the next task does not receive the EBB. (PMEO tells a handler, which runs with GE off, why
//! it was called; with GE on it means nothing.)
//!
//! EBBRR means nothing either while GE and PME are on, as the next EBB overwrites it. It is set to
//! [`EBBRR_UNCHANGED`] then, and shows whether QEMU has made an EBB since.
//!
//! An alert is no longer owed when the program has got its EBB, or has set PMAE again, as that clears
//! PMAO ([`check`]).

use super::{
    super::cpu_state::{
        local_pmu,
        CpuState,
        ThisCpu, //
    },
    alert_state::{
        Alert,
        Outcome,
        EBBRR_UNCHANGED, //
    },
    timer::CheckTimers, //
};
use crate::{
    perf::CpuContexts,
    power::{
        interrupt::program_nip,
        machine,
        pmu,
        regs::{
            Bescr,
            Ebbhr,
            Ebbrr,
            Mmcr0, //
        }, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// Polls before giving up; more instructions than one translation block of the emulator has.
const POLL_LIMIT: usize = 64;

/// What there is for the whole machine.
pub(super) struct Delivery {
    /// An alert under EBE raises a PMI: QEMU 8.1 or later.
    raises_pmi: Atomic<bool>,
    /// Whether an alert under EBE raises a PMI has been tested.
    tested: Atomic<bool>,
    timers: CheckTimers,
}

impl Delivery {
    /// Makes the timers. Fails with `ENOMEM`.
    pub(super) fn new(cpus: &Arc<CpuContexts<CpuState>>) -> Result<Self> {
        Ok(Self {
            raises_pmi: Atomic::new(false),
            tested: Atomic::new(false),
            timers: CheckTimers::new(cpus)?,
        })
    }

    /// Whether this is known to be a QEMU before 8.1, which raises no PMI under EBE.
    fn raises_no_pmi(&self) -> bool {
        self.tested.load(Relaxed) && !self.raises_pmi.load(Relaxed)
    }

    /// Sets what is known of the program's alert, and has it checked soon unless there is nothing to
    /// wait for.
    #[inline(never)]
    fn set_alert(&self, this_cpu: &ThisCpu<'_>, alert: Alert, in_nmi: bool) {
        this_cpu.alert.set(alert);
        this_cpu.alert.restart_pauses();
        if alert != Alert::NoneWatched {
            self.timers.start(this_cpu, in_nmi);
        }
    }

    /// Handles a PMI that came while `mmcr0` has EBE set: the events are the program's, and so are the
    /// counters.
    #[cold]
    pub(super) fn pmi_under_ebe(&self, this_cpu: &ThisCpu<'_>, mmcr0: Mmcr0, in_nmi: bool) {
        if self.raises_no_pmi() {
            // A stray one. This QEMU leaves PMAO to the program.
            return;
        }
        self.raises_pmi.store(true, Relaxed);
        let known = this_cpu.alert.get();
        let alert = match outcome(this_cpu) {
            Outcome::Branched => Alert::None,
            Outcome::Latched => {
                Ebbrr::write(EBBRR_UNCHANGED);
                Alert::Latched
            }
            Outcome::Waiting => Alert::Waiting,
            Outcome::BranchLost => {
                undo_ebb();
                latch_ebb(this_cpu);
                Alert::Latched
            }
        };
        // The PMI may be that of `latch_ebb`: checks are under way, at pauses that must grow.
        if known != Alert::Latched || alert != Alert::Latched {
            self.set_alert(this_cpu, alert, in_nmi);
        }
        // The interrupt's line is up as long as PMAO is set.
        mmcr0.with_const_pmao::<0>().write();
    }

    /// Finds out, once, whether an alert under EBE raises a PMI. The PMU must be stopped.
    #[cold]
    pub(super) fn test_pmi_under_ebe(&self, this_cpu: &ThisCpu<'_>) {
        if self.tested.load(Relaxed) || !machine::interrupts_come() {
            return;
        }
        let stopped = Mmcr0::read();
        // The program may have EBBs on already, and this alert is not of its events: turn EBBs off.
        let bescr = Bescr::read();
        Bescr::from(0).write();
        stopped.with_const_ebe::<1>().with_const_pmao::<1>().write();
        // A PMI sets `raises_pmi` before this is over.
        for _ in 0..POLL_LIMIT {
            pmu::synchronize();
            if self.raises_pmi.load(Relaxed) {
                break;
            }
        }
        stopped.write();
        if local_pmu(this_cpu).clear_pending_interrupt() {
            // A PMI came, and was masked.
            self.raises_pmi.store(true, Relaxed);
        }
        bescr.write();
        this_cpu.alert.set(Alert::None);
        self.tested.store(true, Relaxed);
    }

    /// The current program's events leave this CPU's PMU, which is stopped and had `mmcr0` before.
    /// Returns `mmcr0` with PMAO set if the program is owed an alert.
    #[cold]
    pub(super) fn switch_out(&self, this_cpu: &ThisCpu<'_>, mmcr0: Mmcr0) -> Mmcr0 {
        if !self.raises_pmi.load(Relaxed) {
            if self.raises_no_pmi() {
                clear_latch(Bescr::read());
            }
            return mmcr0;
        }
        let owed = if mmcr0.pmao() == 1 {
            // The alert's PMI has not come, and does not any more.
            match outcome(this_cpu) {
                Outcome::Branched => false,
                Outcome::Latched | Outcome::Waiting => true,
                Outcome::BranchLost => {
                    undo_ebb();
                    true
                }
            }
        } else {
            let owed = match this_cpu.alert.get() {
                Alert::None | Alert::NoneWatched => false,
                Alert::Latched => Ebbrr::read() == EBBRR_UNCHANGED,
                Alert::Waiting => true,
            };
            owed && mmcr0.pmae() == 0
        };
        this_cpu.alert.set(Alert::None);
        // So that the next task does not receive the EBB.
        clear_latch(Bescr::read());
        mmcr0.with_pmao(owed)
    }

    /// The events of the current program, whose bits of MMCR0 are `user`, come to this CPU's PMU, which
    /// is stopped. Returns the bits with which it is to start.
    #[cold]
    pub(super) fn switch_in(&self, this_cpu: &ThisCpu<'_>, user: Mmcr0) -> Mmcr0 {
        let bescr = Bescr::read();
        if !self.raises_pmi.load(Relaxed) {
            if self.raises_no_pmi() {
                if user.pmao() == 1 && takes_ebbs(bescr) {
                    latch_ebb(this_cpu);
                } else {
                    clear_latch(bescr);
                }
            }
            return user;
        }
        let alert = match (user.pmao() == 1, takes_ebbs(bescr)) {
            (true, true) => {
                latch_ebb(this_cpu);
                Alert::Latched
            }
            (true, false) => Alert::Waiting,
            (false, true) => {
                clear_latch(bescr);
                Alert::NoneWatched
            }
            (false, false) => Alert::None,
        };
        self.set_alert(this_cpu, alert, false);
        user.with_const_pmao::<0>()
    }
}

/// Checks the alert of the current program, which the timer interrupted in the program or in the
/// kernel. Returns the pause before the next check in nanoseconds, `None` if there is to be none.
#[cold]
pub(super) fn check(this_cpu: &ThisCpu<'_>, in_program: bool) -> Option<u64> {
    let mmcr0 = Mmcr0::read();
    if mmcr0.ebe() == 0 || mmcr0.pmao() == 1 {
        // The program's events have left the PMU, or a PMI is to come, which tells more.
        return None;
    }
    let state = &this_cpu.alert;
    let bescr = Bescr::read();
    let branched = state.get() == Alert::Latched && Ebbrr::read() != EBBRR_UNCHANGED;
    let enabled_again = mmcr0.pmae() == 1 && state.get() != Alert::NoneWatched;
    if branched || enabled_again {
        state.set(Alert::None);
    }
    match state.get() {
        Alert::NoneWatched => return None,
        Alert::None if takes_ebbs(bescr) => {
            clear_latch(bescr);
            state.set(Alert::NoneWatched);
            return None;
        }
        Alert::Latched | Alert::Waiting if takes_ebbs(bescr) => {
            latch_ebb(this_cpu);
            mmcr0.write();
        }
        _ => {}
    }
    Some(state.next_pause_ns(in_program))
}

/// What became of the alert that occurred.
#[inline(never)]
fn outcome(this_cpu: &ThisCpu<'_>) -> Outcome {
    let at_handler = program_nip(&local_pmu(this_cpu)) == Ebbhr::read();
    let watched = this_cpu.alert.get() == Alert::NoneWatched;
    let ebbrr_changed = watched && Ebbrr::read() != EBBRR_UNCHANGED;
    Outcome::of(Bescr::read(), at_handler, ebbrr_changed)
}

/// Whether the program takes EBBs of the PMU now.
fn takes_ebbs(bescr: Bescr) -> bool {
    bescr.ge() == 1 && bescr.pme() == 1
}

/// Has QEMU clear its latch, as far as `bescr` lets it, and watches EBBRR if the program takes EBBs.
fn clear_latch(bescr: Bescr) {
    if takes_ebbs(bescr) {
        Ebbrr::write(EBBRR_UNCHANGED);
    }
    if bescr.ge() == 1 {
        bescr.with_const_pmeo::<0>().write();
    }
}

/// Undoes an EBB that QEMU made without branching.
fn undo_ebb() {
    Ebbrr::write(EBBRR_UNCHANGED);
    Bescr::read()
        .with_const_ge::<1>()
        .with_const_pmeo::<0>()
        .write();
}

/// Raises an alert in the kernel, so that QEMU latches an EBB, and sets [`Alert::Latched`]. The program
/// must take EBBs. Leaves the PMU frozen.
#[inline(never)]
fn latch_ebb(this_cpu: &ThisCpu<'_>) {
    const PMC5: usize = 4;
    const PMC6: usize = 5;

    this_cpu.alert.set(Alert::Latched);
    Ebbrr::write(EBBRR_UNCHANGED);
    let local = local_pmu(this_cpu);
    local.freeze(false);
    let [instructions, cycles] = [PMC5, PMC6].map(pmu::read_pmc);
    pmu::write_pmc(PMC5, pmu::NEGATIVE - 1);
    pmu::write_pmc(PMC6, 0);
    // PMC5 counts the next instruction, and raises the alert. PMC6 counts beside it.
    Mmcr0::from(0)
        .alerting()
        .with_const_ebe::<1>()
        .with_const_pmcjce::<1>()
        .with_const_fc14::<1>()
        .write();
    for _ in 0..POLL_LIMIT {
        if Mmcr0::read().fc() == 1 {
            break;
        }
    }
    local.freeze(false);
    pmu::write_pmc(PMC5, instructions);
    pmu::write_pmc(PMC6, cycles);
}

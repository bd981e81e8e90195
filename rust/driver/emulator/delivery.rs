// SPDX-License-Identifier: GPL-2.0

//! PMIs under EBE, and alerts that the program cannot take at once.
//!
//! An alert that the program is owed is delivered by having QEMU latch an EBB (`latch.rs`): at the
//! switch in, in the PMI's handler, and in the timer's interrupt (`check.rs`).
//!
//! An alert is no longer owed when the program has got its EBB, or has set PMAE again, as that
//! clears PMAO.

use super::{
    super::cpu_state::{
        local_pmu,
        CpuContexts,
        ThisCpu, //
    },
    alert_state::{
        Alert,
        Outcome,
        EBBRR_UNCHANGED, //
    },
    latch::{
        clear_latch,
        latch_ebb,
        outcome,
        takes_ebbs,
        undo_ebb,
        POLL_LIMIT, //
    },
    timer::CheckTimers, //
};
use crate::power::{
    machine,
    pmu,
    regs::{
        Bescr,
        Ebbrr,
        Mmcr0, //
    },
    thread::CurrentThread, //
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

/// The state for the whole machine. Its functions are cold, as hardware calls none of them.
/// Inlined they would cost a switch there 33 of 827 instructions (`make bench`).
pub(super) struct Delivery {
    /// An alert under EBE raises a PMI: QEMU 8.1 or later.
    raises_pmi: Atomic<bool>,
    /// Whether an alert under EBE raises a PMI has been tested.
    tested: Atomic<bool>,
    timers: CheckTimers,
}

/// MMCR0 as it was when the counters froze. It was read as `before`, but QEMU ignores MMCR2 and so
/// may have raised an alert between that and the write that froze them.
fn at_freeze(before: Mmcr0) -> Mmcr0 {
    let alert = (0..pmu::COUNTERS)
        .any(|index| before.raises_alert(index) && pmu::read_pmc(index) >= pmu::NEGATIVE);
    if alert {
        before.after_alert()
    } else {
        before
    }
}

impl Delivery {
    /// Makes the timers. Fails with `ENOMEM`.
    pub(super) fn new(cpus: &Arc<CpuContexts>) -> Result<Self> {
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

    /// Sets what is known of the program's alert, and has it checked soon unless there is nothing
    /// to wait for.
    fn set_alert(&self, this_cpu: &ThisCpu, alert: Alert, in_nmi: bool) {
        this_cpu.alert.set(alert);
        this_cpu.alert.restart_pauses();
        if alert != Alert::NoneWatched {
            self.timers.start(this_cpu, in_nmi);
        }
    }

    /// Handles a PMI that came while `mmcr0` has EBE set: the events are the program's, and so are
    /// the counters.
    #[cold]
    pub(super) fn pmi_under_ebe(&self, this_cpu: &ThisCpu, mmcr0: Mmcr0, in_nmi: bool) {
        if self.raises_no_pmi() {
            // A stray PMI: this QEMU leaves PMAO to the program.
            return;
        }
        self.raises_pmi.store(true, Relaxed);
        let known = this_cpu.alert.get();
        let alert = match outcome(this_cpu) {
            Outcome::Branched => Alert::None,
            Outcome::Latched => {
                // The check may have cleared PMEO after the alert: QEMU would drop its latch.
                Bescr::read().with_const_pmeo::<1>().write();
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
        // If the PMI is that of `latch_ebb`, checks are under way: their pauses must go on growing.
        if known != Alert::Latched || alert != Alert::Latched {
            self.set_alert(this_cpu, alert, in_nmi);
        }
        // The interrupt's line is up as long as PMAO is set: the PMI would come again at once.
        mmcr0.with_const_pmao::<0>().write();
    }

    /// Finds out, once, whether an alert under EBE raises a PMI. The PMU must be stopped.
    #[cold]
    pub(super) fn test_pmi_under_ebe(&self, this_cpu: &ThisCpu) {
        if self.tested.load(Relaxed) || !machine::hard_irqs_enabled() {
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
        if local_pmu(this_cpu.irqs_off()).clear_pmi_pending() {
            // A PMI came, and was masked.
            self.raises_pmi.store(true, Relaxed);
        }
        bescr.write();
        this_cpu.alert.set(Alert::None);
        self.tested.store(true, Relaxed);
    }

    /// See [`Emulator::switch_out`](super::Emulator::switch_out).
    #[cold]
    pub(super) fn switch_out(&self, this_cpu: &ThisCpu, mmcr0: Mmcr0) {
        let local = local_pmu(this_cpu.irqs_off());
        CurrentThread::new(&local).save_mmcr0(self.with_owed(this_cpu, mmcr0));
    }

    /// `mmcr0`, which the PMU had before it was stopped, with PMAO set if the program is owed an
    /// alert.
    #[inline]
    fn with_owed(&self, this_cpu: &ThisCpu, mmcr0: Mmcr0) -> Mmcr0 {
        let mmcr0 = at_freeze(mmcr0);
        if !self.raises_pmi.load(Relaxed) {
            if self.raises_no_pmi() {
                clear_latch(Bescr::read());
            }
            return mmcr0;
        }
        let owed = if mmcr0.pmao() == 1 {
            // The alert's PMI has not come, and will not: stopping the PMU has cleared PMAO.
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

    /// See [`Emulator::switch_in`](super::Emulator::switch_in).
    #[cold]
    pub(super) fn switch_in(&self, this_cpu: &ThisCpu) {
        let local = local_pmu(this_cpu.irqs_off());
        let thread = CurrentThread::new(&local);
        thread.save_mmcr0(self.deliver(this_cpu, thread.mmcr0()));
    }

    /// Has the program, whose bits of MMCR0 are `user`, get an alert that it is owed. Returns the
    /// bits to start the PMU with.
    #[inline]
    fn deliver(&self, this_cpu: &ThisCpu, user: Mmcr0) -> Mmcr0 {
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

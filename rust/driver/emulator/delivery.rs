// SPDX-License-Identifier: GPL-2.0

//! PMIs under EBE, and alerts that the program cannot take at once.
//!
//! To deliver an owed alert, the driver makes QEMU latch an EBB (`latch.rs`): at switch-in, in the
//! PMI's handler, and in the timer's interrupt (`check.rs`).
//!
//! An alert is no longer owed when the program has got its EBB, or has set PMAE again, because that
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

/// The state for the whole machine. Its functions are cold because hardware calls none of them. If
/// they were inlined, a switch on hardware would take 33 of 827 instructions more (`make bench`).
pub(super) struct Delivery {
    /// Whether an alert under EBE raises a PMI: QEMU 8.1 or later.
    raises_pmi: Atomic<bool>,
    /// Whether `raises_pmi` has been tested.
    tested: Atomic<bool>,
    timers: CheckTimers,
}

/// Returns MMCR0 as it was when the counters froze. It was read as `before`. QEMU ignores MMCR2, so
/// it may have raised an alert between that read and the write that froze the counters.
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

    /// Returns whether this is known to be a QEMU before 8.1, which raises no PMI under EBE.
    fn raises_no_pmi(&self) -> bool {
        self.tested.load(Relaxed) && !self.raises_pmi.load(Relaxed)
    }

    /// Sets the state of the program's alert. Has the alert checked soon unless the program is
    /// ready and no alert is owed.
    fn set_alert(&self, this_cpu: &ThisCpu, alert: Alert, in_nmi: bool) {
        this_cpu.alert.set(alert);
        this_cpu.alert.restart_pauses();
        if alert != Alert::NoneWatched {
            self.timers.start(this_cpu, in_nmi);
        }
    }

    /// Handles a PMI that came while `mmcr0` has EBE set: events and counters belong to the
    /// program.
    #[cold]
    pub(super) fn pmi_under_ebe(&self, this_cpu: &ThisCpu, mmcr0: Mmcr0, in_nmi: bool) {
        if self.raises_no_pmi() {
            // This is a stray PMI: this QEMU does not take PMAO from the program.
            return;
        }
        self.raises_pmi.store(true, Relaxed);
        let known = this_cpu.alert.get();
        let alert = match outcome(this_cpu) {
            Outcome::Branched => Alert::None,
            Outcome::Latched => {
                // The check may have cleared PMEO after the alert, and QEMU would drop its latch.
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
        // If `latch_ebb` caused this PMI, checks are already scheduled, and their pauses must
        // continue to grow.
        if known != Alert::Latched || alert != Alert::Latched {
            self.set_alert(this_cpu, alert, in_nmi);
        }
        // The interrupt line is up while PMAO is set, so the PMI would come again at once.
        mmcr0.with_const_pmao::<0>().write();
    }

    /// Tests, once, whether an alert under EBE raises a PMI. The PMU must be stopped.
    #[cold]
    pub(super) fn test_pmi_under_ebe(&self, this_cpu: &ThisCpu) {
        if self.tested.load(Relaxed) || !machine::hard_irqs_enabled() {
            return;
        }
        let stopped = Mmcr0::read();
        // Turn EBBs off: the program may have them on already, and this alert is not from its
        // events.
        let bescr = Bescr::read();
        Bescr::from(0).write();
        stopped.with_const_ebe::<1>().with_const_pmao::<1>().write();
        // A PMI sets `raises_pmi` during this loop, unless it is masked.
        for _ in 0..POLL_LIMIT {
            pmu::synchronize();
            if self.raises_pmi.load(Relaxed) {
                break;
            }
        }
        stopped.write();
        if local_pmu(this_cpu.irqs_off()).clear_pmi_pending() {
            // A PMI came while PMIs were masked.
            self.raises_pmi.store(true, Relaxed);
        }
        bescr.write();
        this_cpu.alert.set(Alert::None);
        self.tested.store(true, Relaxed);
    }

    /// Saves MMCR0 of a program that is switched out; see
    /// [`Emulator::switch_out`](super::Emulator::switch_out).
    #[cold]
    pub(super) fn switch_out(&self, this_cpu: &ThisCpu, mmcr0: Mmcr0) {
        let local = local_pmu(this_cpu.irqs_off());
        CurrentThread::new(&local).save_mmcr0(self.with_owed(this_cpu, mmcr0));
    }

    /// Returns `mmcr0`, the value before the PMU was stopped, with PMAO set if an alert is owed to
    /// the program.
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
            // The PMI of the alert did not come and will not come: stopping the PMU cleared PMAO.
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
        // The next task must not receive the EBB.
        clear_latch(Bescr::read());
        mmcr0.with_pmao(owed)
    }

    /// Delivers the alert of a program that is switched in; see
    /// [`Emulator::switch_in`](super::Emulator::switch_in).
    #[cold]
    pub(super) fn switch_in(&self, this_cpu: &ThisCpu) {
        let local = local_pmu(this_cpu.irqs_off());
        let thread = CurrentThread::new(&local);
        thread.save_mmcr0(self.deliver(this_cpu, thread.mmcr0()));
    }

    /// Delivers the alert that is owed to the program, if there is one. `user` are the program's
    /// bits of MMCR0. Returns the bits to start the PMU with.
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

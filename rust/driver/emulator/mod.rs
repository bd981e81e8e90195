// SPDX-License-Identifier: GPL-2.0

//! QEMU: how it differs from hardware, and what the driver does about it.
//!
//! Nothing in this folder runs on hardware, nor under KVM: [`Emulator::identify`] looks at the
//! device tree when the module is loaded, and each call of the driver's is one predictable branch
//! where that found no emulator. What the machine does later never turns any of it on.
//!
//! By the architecture an alert with MMCR0\[EBE\] set raises no interrupt, and stays in
//! MMCR0\[PMAO\] until the program has EBBs on. QEMU (8.1 and later) differs:
//!
//! - An alert raises a PMI too, from a line that is up as long as PMAO is set.
//! - QEMU tests BESCR when the alert occurs, and never again: a program that has EBBs off then, as
//!   in its handler, gets no EBB when it turns them on.
//! - With EBBs on, in a program, QEMU branches to the handler. In the kernel it sets BESCR\[PMEO\]
//!   and *latches* the EBB, one bit for each CPU: it branches when a program with GE on is entered
//!   next, whichever that is. If PMEO is off by then, it clears the latch instead.
//! - If an instruction counter overflows in a translation block that ends in a direct branch, that
//!   branch overwrites the one to the handler: QEMU has updated BESCR and EBBRR without branching.
//!
//! QEMU counts in the lppaca's `yield_count` each time that it stops emulating a CPU, thus nearly
//! every alert, though it runs no other partition there.
//!
//! QEMU before 8.1 raises no PMI and leaves PMAO alone, but latches EBBs likewise. No version has
//! MMCR0\[PMCCEXT\], and versions before 9.1 have no BHRB.
//!
//! | file             | subject |
//! |------------------|---------|
//! | `detect.rs`      | the device tree: is this QEMU, and what does it lack |
//! | `alert_state.rs` | what a CPU knows of its program's alert, and what became of one |
//! | `delivery.rs`    | PMIs under EBE, switch out and switch in |
//! | `check.rs`       | the check of an alert that the program could not take |
//! | `timer.rs`       | a timer for each CPU, which has that done |
//! | `latch.rs`       | QEMU's latch of an EBB, and how it is set and cleared |
//!
//! `README.md` beside this file describes the method, and what it cannot do.

pub(super) mod alert_state;
mod check;
mod delivery;
mod detect;
mod latch;
mod timer;

use super::cpu_state::{
    CpuContexts,
    ThisCpu, //
};
use crate::power::{
    interrupt::Interrupted,
    machine,
    regs::Mmcr0, //
};
use delivery::Delivery;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The emulator that the machine is, if it is one.
pub(super) struct Emulator(Option<Delivery>);

impl Emulator {
    /// Looks at the device tree, and prepares for QEMU if this is QEMU. Fails with `ENOMEM`.
    pub(super) fn identify(cpus: &Arc<CpuContexts>) -> Result<Self> {
        if !detect::is_qemu() {
            return Ok(Self(None));
        }
        if detect::lacks_bhrb() {
            machine::disable_bhrb();
        }
        machine::set_not_shared();
        Ok(Self(Some(Delivery::new(cpus)?)))
    }

    /// Whether handlers of other interrupts let PMIs through unless the user says so. Not in QEMU:
    /// with short periods the programs there make hardly any progress.
    pub(super) fn prompt_by_default(&self) -> bool {
        self.0.is_none()
    }

    /// Whether an alert under EBE may raise a PMI. [`Emulator::test_pmi_under_ebe`] finds out
    /// whether it does.
    pub(super) fn may_raise_pmi_under_ebe(&self) -> bool {
        self.0.is_some()
    }

    /// Handles a PMI that came while `mmcr0` has EBE set. Returns false if that is not QEMU's
    /// doing.
    #[inline]
    pub(super) fn pmi_under_ebe(
        &self,
        this_cpu: &ThisCpu,
        mmcr0: Mmcr0,
        interrupted: &Interrupted,
    ) -> bool {
        let Some(delivery) = &self.0 else {
            return false;
        };
        delivery.pmi_under_ebe(this_cpu, mmcr0, interrupted.is_nmi());
        true
    }

    /// Finds out, once, whether an alert under EBE raises a PMI. The PMU must be stopped.
    #[inline]
    pub(super) fn test_pmi_under_ebe(&self, this_cpu: &ThisCpu) {
        if let Some(delivery) = &self.0 {
            delivery.test_pmi_under_ebe(this_cpu);
        }
    }

    /// The current program's events leave this CPU's PMU, which is stopped and had `mmcr0` before.
    /// That was saved, and is saved again with PMAO set if the program is owed an alert.
    #[inline]
    pub(super) fn switch_out(&self, this_cpu: &ThisCpu, mmcr0: Mmcr0) {
        if let Some(delivery) = &self.0 {
            delivery.switch_out(this_cpu, mmcr0);
        }
    }

    /// The events of the current program come to this CPU's PMU, which is stopped. Sets the saved
    /// bits of MMCR0 to those to start with.
    pub(super) fn switch_in(&self, this_cpu: &ThisCpu) {
        if let Some(delivery) = &self.0 {
            delivery.switch_in(this_cpu);
        }
    }
}

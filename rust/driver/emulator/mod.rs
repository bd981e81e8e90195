// SPDX-License-Identifier: GPL-2.0

//! QEMU: the differences from hardware, and the driver's code for them.
//!
//! Nothing in this folder runs on hardware or under KVM. [`Emulator::identify`] reads the device
//! tree when the module is loaded, and if it finds no emulator, each call from the driver is one
//! predictable branch. Nothing that the machine does later changes this.
//!
//! By the architecture an alert with MMCR0\[EBE\] set raises no interrupt, and stays in
//! MMCR0\[PMAO\] until the program has EBBs on. QEMU (8.1 and later) differs:
//!
//! - An alert also raises a PMI, from a line that is up as long as PMAO is set.
//! - QEMU tests BESCR only once, when the alert occurs. A program that has EBBs off then, for
//!   example in its handler, gets no EBB when it turns them on.
//! - In a program with EBBs on, QEMU branches to the handler. In the kernel it sets BESCR\[PMEO\]
//!   and *latches* the EBB, one bit for each CPU: it branches when any program with GE on is
//!   entered next. If PMEO is off by then, it clears the latch instead.
//! - If an instruction counter overflows in a translation block that ends in a direct branch, that
//!   branch overrides the one to the handler: QEMU has updated BESCR and EBBRR without branching.
//!
//! QEMU increments the lppaca's `yield_count` each time that it stops emulating a CPU, which is
//! nearly every alert, although it runs no other partition there.
//!
//! QEMU before 8.1 raises no PMI and does not change PMAO, but latches EBBs in the same way. No
//! version has MMCR0\[PMCCEXT\], and versions before 9.1 have no BHRB.
//!
//! | file             | subject |
//! |------------------|---------|
//! | `detect.rs`      | the device tree: whether this is QEMU, and which features it lacks |
//! | `alert_state.rs` | a CPU's record of its program's alert, and the outcome of an alert |
//! | `delivery.rs`    | PMIs under EBE, switch out and switch in |
//! | `check.rs`       | the check of an alert that the program could not take |
//! | `timer.rs`       | a timer for each CPU that starts this check |
//! | `latch.rs`       | QEMU's latch of an EBB, and how it is set and cleared |
//!
//! `README.md` in this folder describes the method and its limits.

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

/// The emulator that the machine runs on; `None` on other machines.
pub(super) struct Emulator(Option<Delivery>);

impl Emulator {
    /// Reads the device tree, and prepares for QEMU if this is QEMU. Fails with `ENOMEM`.
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

    /// Returns whether the driver wants prompt PMIs by default. It does not in QEMU, because
    /// programs there would make almost no progress with short periods.
    pub(super) fn wants_prompt_pmis_by_default(&self) -> bool {
        self.0.is_none()
    }

    /// Returns whether an alert under EBE may raise a PMI. [`Emulator::test_pmi_under_ebe`] finds
    /// out whether it does.
    pub(super) fn may_raise_pmi_under_ebe(&self) -> bool {
        self.0.is_some()
    }

    /// Handles a PMI that occurred while `mmcr0` has EBE set. Returns false if QEMU is not the
    /// cause.
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

    /// Tests, once, whether an alert under EBE raises a PMI. The PMU must be stopped.
    #[inline]
    pub(super) fn test_pmi_under_ebe(&self, this_cpu: &ThisCpu) {
        if let Some(delivery) = &self.0 {
            delivery.test_pmi_under_ebe(this_cpu);
        }
    }

    /// Handles the removal of the current program's events from this CPU's PMU. The PMU is stopped,
    /// and `mmcr0` is its value before. The caller has saved that value; this saves it again with
    /// PMAO set if an alert is owed to the program.
    #[inline]
    pub(super) fn switch_out(&self, this_cpu: &ThisCpu, mmcr0: Mmcr0) {
        if let Some(delivery) = &self.0 {
            delivery.switch_out(this_cpu, mmcr0);
        }
    }

    /// Handles the return of the current program's events to this CPU's PMU, which is stopped.
    /// Changes the saved bits of MMCR0 to those with which the PMU must start.
    pub(super) fn switch_in(&self, this_cpu: &ThisCpu) {
        if let Some(delivery) = &self.0 {
            delivery.switch_in(this_cpu);
        }
    }
}

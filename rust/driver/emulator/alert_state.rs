// SPDX-License-Identifier: GPL-2.0

//! A CPU's record of the alert of the program whose events are on its PMU, and the outcome of an
//! alert that occurred.
//!
//! A program has at most one alert, because PMAO is one bit. A CPU's [`AlertState`] describes the
//! program's alert only while the program's events are on that CPU. At switch-out an owed alert is
//! stored as PMAO in the program's saved MMCR0. So it moves with the task, is not inherited, and is
//! cleared with the first event that is scheduled after all others were closed.
//!
//! The PMI's handler and the timer's interrupt write the state, too, so other code writes it only
//! while the PMU is disabled or PMIs are masked.

use crate::{
    perf::PmiCell,
    power::regs::Bescr, //
};
use kernel::prelude::*;

/// The value of EBBRR while the program can take an EBB and has not got one. An EBB overwrites it
/// with the address of an instruction, which is a multiple of four.
pub(super) const EBBRR_UNCHANGED: u64 = 1;

/// Pause before the first check of an alert. A shorter pause would slow down the handler that the
/// alert waits for.
pub(super) const FIRST_CHECK_NS: u64 = 20_000;

/// Shortest pause after a check that interrupted the kernel. On a debug kernel an interrupt may
/// take longer than [`FIRST_CHECK_NS`], and a long system call would make no progress.
const KERNEL_CHECK_NS: u64 = 80_000;

/// Longest pause. Pauses double up to it.
const SLOWEST_CHECK_NS: u64 = 640_000;

/// The alert of the program whose events are on this CPU's PMU.
#[derive(Clone, Copy, Debug, Default, IntoBytes, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Alert {
    /// No alert is owed. The program may be in its handler.
    #[default]
    None,
    /// No alert is owed, and EBBRR holds [`EBBRR_UNCHANGED`].
    NoneWatched,
    /// QEMU has latched the EBB, and EBBRR holds [`EBBRR_UNCHANGED`].
    Latched,
    /// An alert is owed, and the program cannot take it now.
    Waiting,
}

/// The outcome of an alert that occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// QEMU branched, and the program is at the start of its handler.
    Branched,
    /// QEMU latched the EBB, and will branch when it enters the program.
    Latched,
    /// The program cannot take the EBB now.
    Waiting,
    /// QEMU updated BESCR and EBBRR without branching.
    BranchLost,
}

impl Outcome {
    /// Returns the outcome, given BESCR, whether the program is at the start of its handler, and
    /// whether EBBRR differs from [`EBBRR_UNCHANGED`].
    pub(super) fn of(bescr: Bescr, at_handler: bool, ebbrr_changed: bool) -> Self {
        if bescr.pme() == 0 {
            Self::Waiting
        } else if bescr.ge() == 1 {
            Self::Latched
        } else if bescr.pmeo() == 0 {
            // The program itself turned EBBs off.
            Self::Waiting
        } else if at_handler {
            Self::Branched
        } else if ebbrr_changed {
            Self::BranchLost
        } else {
            // The handler is running.
            Self::Waiting
        }
    }
}

/// A CPU's record of its program's alert, and of the pause before the next check.
#[derive(Default)]
pub(in super::super) struct AlertState {
    alert: PmiCell<Alert>,
    /// The pause before the next check.
    pause_ns: PmiCell<u64>,
}

impl AlertState {
    pub(super) fn get(&self) -> Alert {
        self.alert.get()
    }

    /// Sets the alert. Does not change the pauses between checks.
    pub(super) fn set(&self, alert: Alert) {
        self.alert.set(alert);
    }

    /// Resets the pauses between checks to the shortest one.
    pub(super) fn restart_pauses(&self) {
        self.pause_ns.set(FIRST_CHECK_NS);
    }

    /// Returns the pause after a check that interrupted the program, or the kernel, and doubles the
    /// next pause.
    pub(super) fn next_pause_ns(&self, in_program: bool) -> u64 {
        let shortest = if in_program {
            FIRST_CHECK_NS
        } else {
            KERNEL_CHECK_NS
        };
        let pause = self.pause_ns.get().max(shortest);
        self.pause_ns.set(SLOWEST_CHECK_NS.min(2 * pause));
        pause
    }
}

/// KUnit tests (see `Documentation/testing.md`).
#[cfg(EBB_KUNIT)]
#[kernel::macros::kunit_tests(ebb_pmu_emulator)]
mod tests {
    use super::*;

    #[test]
    fn outcome_of_an_alert_by_bescr() {
        const GE: u64 = 1 << 63;
        const PME: u64 = 1 << 32;
        const PMEO: u64 = 1;
        let outcome = |bescr, at_handler, ebbrr_changed| {
            Outcome::of(Bescr::from(bescr), at_handler, ebbrr_changed)
        };

        // With PME off, the program takes no EBBs from the PMU.
        for bescr in [0, GE, PMEO, GE | PMEO] {
            assert_eq!(outcome(bescr, true, true), Outcome::Waiting);
        }
        // With GE and PME on, QEMU latches the EBB. PMEO may be set by an earlier one.
        assert_eq!(outcome(GE | PME, false, false), Outcome::Latched);
        assert_eq!(outcome(GE | PME | PMEO, true, true), Outcome::Latched);
        // The program turned EBBs off, and QEMU made none since then.
        assert_eq!(outcome(PME, true, true), Outcome::Waiting);
        // QEMU made an EBB: this one, an earlier one whose handler is running, or one without a
        // branch.
        assert_eq!(outcome(PME | PMEO, true, true), Outcome::Branched);
        assert_eq!(outcome(PME | PMEO, false, false), Outcome::Waiting);
        assert_eq!(outcome(PME | PMEO, false, true), Outcome::BranchLost);
    }
}

// SPDX-License-Identifier: GPL-2.0

//! QEMU's latch of an EBB, and the driver's use of BESCR and EBBRR, which show its state.
//!
//! If an alert is raised in the kernel with BESCR\[GE\] and \[PME\] on, QEMU latches the EBB and
//! branches as soon as the program continues, however it entered the kernel ([`latch_ebb`]). The
//! latch is one bit, so raising twice does no harm.
//!
//! QEMU would give a latched EBB to the next program with GE on. So PMEO is cleared at switch-out
//! ([`clear_latch`]), and the next task does not receive the EBB. PMEO has a meaning only for a
//! handler, which runs with GE off: it shows the cause of the EBB. With GE on it has no meaning.
//!
//! EBBRR has no meaning either while GE and PME are on, because the next EBB overwrites it. It is
//! set to [`EBBRR_UNCHANGED`] then, and shows whether QEMU has made an EBB since.

use super::{
    super::cpu_state::{
        local_pmu,
        ThisCpu, //
    },
    alert_state::{
        Alert,
        Outcome,
        EBBRR_UNCHANGED, //
    }, //
};
use crate::power::{
    interrupt::program_nip,
    pmu,
    regs::{
        Bescr,
        Ebbhr,
        Ebbrr,
        Mmcr0, //
    }, //
};

/// Number of polls before giving up; more instructions than one translation block of the emulator
/// has.
pub(super) const POLL_LIMIT: usize = 64;

/// Returns the outcome of the alert that occurred.
pub(super) fn outcome(this_cpu: &ThisCpu) -> Outcome {
    let at_handler = program_nip(&local_pmu(this_cpu.irqs_off())) == Ebbhr::read();
    let watched = this_cpu.alert.get() == Alert::NoneWatched;
    let ebbrr_changed = watched && Ebbrr::read() != EBBRR_UNCHANGED;
    Outcome::of(Bescr::read(), at_handler, ebbrr_changed)
}

/// Returns whether the program takes EBBs from the PMU now.
pub(super) fn takes_ebbs(bescr: Bescr) -> bool {
    bescr.ge() == 1 && bescr.pme() == 1
}

/// Makes QEMU clear its latch if `bescr` has GE on; with GE off the handler owns PMEO. Watches
/// EBBRR if the program takes EBBs.
pub(super) fn clear_latch(bescr: Bescr) {
    if takes_ebbs(bescr) {
        Ebbrr::write(EBBRR_UNCHANGED);
    }
    if bescr.ge() == 1 {
        bescr.with_const_pmeo::<0>().write();
    }
}

/// Undoes an EBB that QEMU made without branching.
pub(super) fn undo_ebb() {
    Ebbrr::write(EBBRR_UNCHANGED);
    Bescr::read()
        .with_const_ge::<1>()
        .with_const_pmeo::<0>()
        .write();
}

/// Raises an alert in the kernel, so that QEMU latches an EBB, and sets [`Alert::Latched`]. The
/// program must be able to take EBBs. On return the PMU is frozen.
pub(super) fn latch_ebb(this_cpu: &ThisCpu) {
    const PMC5: usize = 4;
    const PMC6: usize = 5;

    this_cpu.alert.set(Alert::Latched);
    Ebbrr::write(EBBRR_UNCHANGED);
    let local = local_pmu(this_cpu.irqs_off());
    local.freeze(false);
    let [instructions, cycles] = [PMC5, PMC6].map(pmu::read_pmc);
    pmu::write_pmc(PMC5, pmu::NEGATIVE - 1);
    pmu::write_pmc(PMC6, 0);
    // PMC5 counts the next instruction and raises the alert. PMC6 counts as well. A QEMU that
    // executes single instructions to log them (`scripts/vm run --trace`) counts on PMC5 only
    // instructions that always end a block, such as isync.
    Mmcr0::from(0)
        .alerting()
        .with_const_ebe::<1>()
        .with_const_pmcjce::<1>()
        .with_const_fc14::<1>()
        .write();
    for _ in 0..POLL_LIMIT {
        pmu::synchronize();
        if Mmcr0::read().fc() == 1 {
            break;
        }
    }
    local.freeze(false);
    pmu::write_pmc(PMC5, instructions);
    pmu::write_pmc(PMC6, cycles);
}

// SPDX-License-Identifier: GPL-2.0

//! QEMU's latch of an EBB, and BESCR and EBBRR, which tell of it.
//!
//! An alert that is raised in the kernel, with BESCR\[GE\] and \[PME\] on, has QEMU latch the EBB
//! and branch as soon as the program goes on, whatever way it came into the kernel ([`latch_ebb`]).
//! The latch is one bit, so raising twice does no harm.
//!
//! QEMU would give a latched EBB to whichever program with GE on runs next. Clear PMEO on
//! switch-out ([`clear_latch`]), so that the next task does not receive the EBB. (PMEO tells a
//! handler, which runs with GE off, why it was called; with GE on it means nothing.)
//!
//! EBBRR means nothing either while GE and PME are on, as the next EBB overwrites it. It is set to
//! [`EBBRR_UNCHANGED`] then, and shows whether QEMU has made an EBB since.

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

/// Polls before giving up; more instructions than one translation block of the emulator has.
pub(super) const POLL_LIMIT: usize = 64;

/// What became of the alert that occurred.
pub(super) fn outcome(this_cpu: &ThisCpu) -> Outcome {
    let at_handler = program_nip(&local_pmu(this_cpu.irqs_off())) == Ebbhr::read();
    let watched = this_cpu.alert.get() == Alert::NoneWatched;
    let ebbrr_changed = watched && Ebbrr::read() != EBBRR_UNCHANGED;
    Outcome::of(Bescr::read(), at_handler, ebbrr_changed)
}

/// Whether the program takes EBBs of the PMU now.
pub(super) fn takes_ebbs(bescr: Bescr) -> bool {
    bescr.ge() == 1 && bescr.pme() == 1
}

/// Has QEMU clear its latch if `bescr` has GE on; with GE off PMEO is the handler's. Watches EBBRR
/// if the program takes EBBs.
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
/// program must take EBBs. Leaves the PMU frozen.
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
    // PMC5 counts the next instruction, and raises the alert. PMC6 counts beside it. In a QEMU that
    // goes by single instructions to log them (`scripts/vm run --trace`), PMC5 counts only those
    // that end a block in any case, as isync does.
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

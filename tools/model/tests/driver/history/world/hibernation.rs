// SPDX-License-Identifier: GPL-2.0

//! The kernel comes back from the image of a hibernation: for the CPU that restores it nothing has
//! happened, but its PMU is another.

use super::{directed::CYCLES, *};
use crate::{history::MACHINE, machine::restart, power::bindings::syscore_resume};
use std::sync::PoisonError;

/// Ends a history around which CPU 0 restored an image.
fn restored(before: &[Op], after: &[Op], kind: Kind) {
    let mut world = World::new(kind, false);
    before.iter().for_each(|op| world.step(op));
    world.core.run_on(0);
    let lppaca = with_cpu(|cpu| cpu.lppaca);
    restart(0);
    with_cpu(|cpu| {
        // What is in memory is that of the image.
        cpu.lppaca = lppaca;
        // Programs could read it.
        cpu.facility.mtspr(spr::MMCR0, mmcr0::FC);
        cpu.facility.mtspr(spr::MMCR1, 0x0202_0202);
    });
    syscore_resume();
    world.forget_branches(0);
    after.iter().for_each(|op| world.step(op));
    world.end();
}

#[test]
fn what_comes_back_is_programmed_anew() {
    let _one = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let leave = Op::Switch(0, TASKS as u8);
    let come_back = [Op::Switch(0, 0), Op::Run(0, 9, 3, 3), leave];
    for kind in Kind::of_each(Kind::partition) {
        for open in [Op::Open(0, CYCLES), Op::OpenEbb(0, 0)] {
            let before = [Op::Switch(0, 0), open, Op::Run(0, 9, 3, 3), leave];
            restored(&before, &come_back, kind);
        }
    }
}

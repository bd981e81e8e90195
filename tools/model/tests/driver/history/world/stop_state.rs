// SPDX-License-Identifier: GPL-2.0

//! Stop states of a bare metal machine that damage registers while an event of a CPU uses them.

use super::{
    directed::in_each,
    suspended::{open_on, start_again},
    *,
};
use crate::machine::execute;

#[test]
fn the_next_enable_mends_mmcr1() {
    in_each(Kind::bare_metal, |world, kind| {
        let event = open_on(world, 0, 1);
        world.step(&Op::Switch(0, 0));
        world.step(&Op::Run(0, 9, 1, 3));
        world.core.run_on(0);
        let mmcr1 = with_cpu(|cpu| cpu.facility.mfspr(spr::MMCR1));
        assert_ne!(mmcr1, 0);
        let counter = spr::PMC1 + event.idx() as u32 - 1;
        let value = with_cpu(|cpu| cpu.facility.mfspr(counter));
        let counted = value - (NEGATIVE - (1 << 20));
        assert_ne!(counted, 0);
        with_cpu(|cpu| cpu.facility.mtspr(spr::MMCR1, 0));
        start_again(world, &event);
        let mended = with_cpu(|cpu| cpu.facility.mfspr(spr::MMCR1));
        assert_eq!(mended, mmcr1, "{:?}", kind.processor);
        let read = world.core.read(&event);
        assert!(read >= counted, "{:?}: counts are lost", kind.processor);
        // The event has not counted since the damage.
        assert!(kernel::complaint().is_some());
    });
}

#[test]
fn a_counter_without_event_that_is_left_negative_alerts_once() {
    in_each(Kind::bare_metal, |world, kind| {
        // An event on PMC6.
        let (code, _) = CODES[3];
        world.add(World::attr(code, 0), (None, Some(0)), None);
        world.core.run_on(0);
        let pmc2 = spr::PMC1 + 1;
        let before = with_cpu(|cpu| cpu.facility.alerts());
        execute(|facility| facility.mtspr(pmc2, NEGATIVE));
        (0..9).for_each(|_| execute(|_| ()));
        let (left, alerts) =
            with_cpu(|cpu| (cpu.facility.mfspr(pmc2), cpu.facility.alerts() - before));
        assert_eq!((left, alerts), (0, 1), "{:?}", kind.processor);
    });
}

// SPDX-License-Identifier: GPL-2.0

//! Two EBB groups of a task: saved register values belong to the task, not to the group.

use super::{
    directed::{NOBODY, run},
    *,
};

#[test]
fn another_group_of_a_task_keeps_the_alert_of_the_first() {
    // The alert waits for PME while the group is disabled and another one is scheduled in and out,
    // on this CPU or on another one.
    let first = [
        Op::Switch(0, 0),
        Op::OpenEbb(0, 3),
        Op::User(0, UserWrite::Bescr(0b01)),
        Op::User(0, UserWrite::Counter(5, 4)),
        Op::Run(0, 8, 3, 3),
        Op::Disable(0),
    ];
    let here = [Op::OpenEbbGroup(0, 2, None), Op::Close(1)];
    let elsewhere = [
        Op::OpenEbbGroup(0, 2, Some(1)),
        Op::Switch(0, NOBODY),
        Op::Switch(1, 0),
        Op::Run(1, 3, 1, 3),
        Op::Switch(1, NOBODY),
        Op::Switch(0, 0),
    ];
    let last = [
        Op::Enable(0),
        Op::User(0, UserWrite::Bescr(0b11)),
        Op::Run(0, 2, 1, 3),
    ];
    for others in [here.as_slice(), &elsewhere] {
        let history = [&first, others, &last].concat();
        run(&history, |_, facility| {
            assert_eq!(facility.mfspr(spr::BESCR), bescr::PMEO, "no EBB");
        });
    }
}

#[test]
fn a_group_finds_nothing_of_one_that_was_closed_before_it_ran() {
    // MMCR2 and FC are those of the first group's program. The second group is already open when
    // the first one is closed, but has not been on a PMU.
    let history = [
        Op::Switch(0, 0),
        Op::OpenEbb(0, 3),
        Op::User(0, UserWrite::Mmcr2(1 << 5)),
        Op::User(0, UserWrite::Mmcr0(0b001)),
        Op::OpenEbbGroup(0, 2, Some(1)),
        Op::Close(0),
        Op::Switch(0, NOBODY),
        Op::Switch(1, 0),
    ];
    run(&history, |_, _| {
        let facility = with_machine(|machine| machine.cpus[1].facility.clone());
        let [mmcr0, mmcr2] = [spr::MMCR0, spr::MMCR2].map(|number| facility.mfspr(number));
        assert_eq!((mmcr0 & mmcr0::FC, mmcr2 & mmcr2::USER), (0, 0));
    });
}

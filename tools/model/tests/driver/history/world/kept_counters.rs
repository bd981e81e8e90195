// SPDX-License-Identifier: GPL-2.0

//! Histories that add and remove events beside others, which must keep their counters.

use super::{
    directed::{CYCLES, NOBODY, in_each, run},
    *,
};

/// Cycles, counted without samples.
const COUNTING: Wish = wish!(CYCLES, period: 0, addr: false, registers: false);

#[test]
fn an_event_keeps_its_counter_while_an_equal_one_is_added_and_removed() {
    let of_cpu = wish!(COUNTING, of_cpu: true);
    let mut history = vec![Op::Switch(0, 0), Op::Open(0, of_cpu), Op::Open(0, COUNTING)];
    for _ in 0..4 {
        history.extend([
            Op::Run(0, 7, 1, 3),
            Op::Cgroup(0, false),
            Op::Run(0, 5, 1, 3),
        ]);
        history.extend([Op::Read(0), Op::Read(1)]);
    }
    run(&history, |_, _| {});

    // The first two events run in one order, then in the other.
    let mut history = vec![Op::Switch(0, 0), Op::Open(0, of_cpu), Op::Cgroup(0, true)];
    history.extend([
        Op::Open(0, COUNTING),
        Op::Run(0, 7, 1, 3),
        Op::Cgroup(0, false),
    ]);
    for _ in 0..2 {
        history.extend([Op::Run(0, 5, 1, 3), Op::Reschedule(0), Op::Run(0, 5, 1, 3)]);
        history.extend([
            Op::Cgroup(0, false),
            Op::Run(0, 5, 1, 3),
            Op::Read(0),
            Op::Read(1),
        ]);
    }
    run(&history, |_, _| {});
}

/// Opens an event of task 0 that only counts.
fn open(code: u8, member: bool) -> Op {
    let wish = wish!(COUNTING, code, member);
    Op::Open(0, wish)
}

/// Returns the number of events that are on a counter.
fn counted(world: &World) -> usize {
    let on = |event: &&Rc<Event>| event.idx() != 0;
    world.open.iter().filter(on).count()
}

#[test]
fn events_that_count_with_alternative_codes_count_on_without_the_one_on_pmc4() {
    // Two events of POWER9's bus use PMC4 and PMC1; two others PMC2 and PMC3; only PMC6 remains for
    // cycles.
    let mut history = vec![Op::Switch(0, 0), open(15, false), open(14, true)];
    history.extend([7, 8, 0].map(|code| open(code, false)));
    history.extend([Op::Run(0, 7, 1, 3), Op::Close(0), Op::Run(0, 5, 2, 3)]);
    run(&history, |world, facility| {
        if facility.processor() == Processor::Power9 {
            assert_eq!(counted(world), 4);
        }
    });
}

#[test]
fn events_that_depend_on_one_that_departed_are_not_scheduled_in_again() {
    // Two events of POWER9's bus use PMC4 and PMC1.
    let mut history = vec![Op::Switch(0, 0), open(15, false), open(14, true)];
    history.extend([Op::Run(0, 7, 1, 3), Op::Close(0), Op::Run(0, 5, 2, 3)]);
    history.extend([Op::Switch(0, NOBODY), Op::Switch(0, 0)]);
    run(&history, |world, facility| {
        if facility.processor() == Processor::Power9 {
            assert_eq!((world.open.len(), counted(world)), (1, 0));
        }
    });
}

#[test]
fn remaining_events_get_a_counter_each_after_one_counted_with_an_alternative_code_elsewhere() {
    in_each(Kind::partition, |world, kind| {
        let add = |world: &mut World, code, place, pinned: bool| {
            let mut attr = World::attr(code, 0);
            attr.set_pinned(pinned.into());
            world.add(attr, place, None);
        };
        world.step(&Op::Switch(0, 0));
        // The first event uses PMC2, or on POWER9 PMC3 with an alternative code; the second uses
        // PMC3; the third counts cycles.
        for code in [0x2_00f2, 0x3_0050, 0x1e] {
            add(world, code, (Some(0), None), false);
        }
        // On CPU 1 PMC2 is in use, so the first event counts on PMC3, and the second does not
        // count.
        add(world, 0x2_0050, (None, Some(1)), true);
        let away = [Op::Switch(0, NOBODY), Op::Switch(1, 0), Op::Close(2)];
        let back = [Op::Switch(1, NOBODY), Op::Switch(0, 0)];
        away.iter().chain(&back).for_each(|op| world.step(op));
        let mut on = [0, 1].map(|index| world.open[index].idx());
        on.sort_unstable();
        assert_eq!(on, [2, 3], "{:?}", kind.processor);
    });
}

#[test]
fn an_event_that_counts_with_an_alternative_code_keeps_its_counter_as_another_one_leaves() {
    // The first event uses PMC4; the second PMC4 too, or PMC5 with an alternative code; the third
    // counts cycles.
    let mut history = vec![Op::Switch(0, 0)];
    history.extend([9, 10, 0].map(|code| Op::Open(0, wish!(COUNTING, code))));
    history.extend([Op::Run(0, 7, 3, 3), Op::Close(2), Op::Run(0, 5, 3, 3)]);
    history.extend([Op::Read(0), Op::Read(1)]);
    run(&history, |world, _| {
        let [first, second] = [0, 1].map(|index| world.open[index].idx());
        assert_ne!(first, second);
    });
}

#[test]
fn an_event_counts_on_as_another_leaves_after_it_counted_with_an_alternative_code_elsewhere() {
    // The first event uses PMC4, or PMC5 with an alternative code; the second counts cycles.
    let mut history = vec![Op::Switch(0, 0)];
    history.extend([10, 0].map(|code| Op::Open(0, wish!(COUNTING, code))));
    history.push(Op::Run(0, 7, 3, 3));
    // On CPU 1 PMC4 is in use.
    let of_cpu = wish!(COUNTING, code: 9, of_cpu: true, pinned: true);
    history.extend([
        Op::Open(1, of_cpu),
        Op::Switch(0, NOBODY),
        Op::Switch(1, 0),
        Op::Run(1, 5, 3, 3),
        Op::Switch(1, NOBODY),
        Op::Switch(0, 0),
        Op::Run(0, 6, 3, 3),
        Op::Close(1),
        Op::Run(0, 4, 3, 3),
        Op::Read(0),
    ]);
    run(&history, |_, _| {});
}

#[test]
fn a_program_finds_no_alert_in_the_counter_of_an_event_that_it_closed() {
    // The events use PMC6 and PMC4, which becomes negative while alerts are disabled.
    let history = [
        Op::Switch(0, 0),
        Op::OpenEbb(0, 3),
        Op::OpenEbb(0, 9),
        Op::User(0, UserWrite::Mmcr0(0)),
        Op::User(0, UserWrite::Counter(3, 2)),
        Op::Run(0, 8, 3, 3),
        Op::Close(1),
        Op::Run(0, 2, 3, 3),
    ];
    run(&history, |_, facility| {
        assert_eq!(facility.mfspr(spr::PMC1 + 3), 0);
    });
}

#[test]
fn a_program_finds_what_it_left_in_a_counter_without_an_event() {
    // The events use PMC6 (and PMC5 counts instructions beside it) and PMC4.
    let history = [
        Op::Switch(0, 0),
        Op::OpenEbb(0, 3),
        Op::OpenEbb(0, 9),
        Op::Run(0, 8, 1, 3),
        Op::Switch(0, NOBODY),
        Op::Switch(0, 0),
        Op::Close(1),
        Op::Run(0, 2, 1, 3),
    ];
    run(&history, |_, facility| {
        assert_eq!(facility.mfspr(spr::PMC1 + 4), 10);
    });
}

#[test]
fn an_overflow_is_not_lost_where_the_event_stays_and_another_one_comes() {
    // This event counts the kernel, which opens the others, and overflows there.
    let stays = wish!(
        CYCLES, code: 135, period: 9, exclude_kernel: false, exclude_hv: false, pinned: true,
        registers: false, weight: 4, of_cpu: true
    );
    let other = wish!(
        CYCLES, code: 88, period: 0, exclude_user: true, exclude_hv: false, addr: false,
        weight: 2, member: true
    );
    let history = [
        Op::Open(190, stays),
        Op::Switch(174, 176),
        Op::Disable(107),
        Op::Enable(51),
        Op::Open(161, other),
        Op::OpenEbb(201, 7),
    ];
    run(&history, |_, _| {});
}

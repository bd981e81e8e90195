// SPDX-License-Identifier: GPL-2.0

//! Histories in which events come and go beside others, which must stay on their counters.

use super::{
    directed::{CYCLES, run},
    *,
};

/// Cycles, counted without samples.
const COUNTING: Wish = Wish {
    period: 0,
    addr: false,
    registers: false,
    ..CYCLES
};

#[test]
fn an_event_keeps_its_counter_where_another_one_that_asks_for_the_same_comes_and_goes() {
    let of_cpu = Wish {
        of_cpu: true,
        ..COUNTING
    };
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

    // The two first run in one order, then in the other.
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

#[test]
fn events_that_count_by_other_codes_count_on_without_the_one_on_pmc4() {
    let open = |code, member| {
        let wish = Wish {
            code,
            member,
            ..COUNTING
        };
        Op::Open(0, wish)
    };
    // Two of POWER9's bus, on PMC4 and PMC1; PMC2, PMC3; and cycles, for which PMC6 is left.
    let mut history = vec![Op::Switch(0, 0), open(15, false), open(14, true)];
    history.extend([7, 8, 0].map(|code| open(code, false)));
    history.extend([Op::Run(0, 7, 1, 3), Op::Close(0), Op::Run(0, 5, 2, 3)]);
    run(&history, |world, facility| {
        let on = |event: &&Rc<Event>| event.idx() != 0;
        let counted = world.open.iter().filter(on).count();
        if facility.processor() == Processor::Power9 {
            assert_eq!(counted, 4);
        }
    });
}

#[test]
fn an_overflow_is_not_lost_where_the_event_stays_and_another_one_comes() {
    // It counts the kernel, which opens the others, and overflows in that.
    let stays = Wish {
        code: 135,
        period: 9,
        exclude_kernel: false,
        exclude_hv: false,
        pinned: true,
        registers: false,
        weight: 4,
        of_cpu: true,
        ..CYCLES
    };
    let other = Wish {
        code: 88,
        period: 0,
        exclude_user: true,
        exclude_hv: false,
        addr: false,
        weight: 2,
        member: true,
        ..CYCLES
    };
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

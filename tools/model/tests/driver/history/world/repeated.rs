// SPDX-License-Identifier: GPL-2.0

//! Histories that repeat a part many times, or with many periods. Random ones take too long to
//! reach these cases.

use super::{
    directed::{CYCLES, NOBODY, in_each, run, run_on},
    *,
};

#[test]
fn a_pm_interrupt_in_the_middle_of_read_counts_once() {
    // The event counts each instruction of the kernel, so with one of these periods the instruction
    // with which the driver reads the counter ends the period. The next period begins with the
    // value in `prev_count`.
    let of_kernel = wish!(CYCLES, code: 1, exclude_kernel: false, addr: false, registers: false);
    for period in 1..60 {
        let event = wish!(of_kernel, period);
        let history = [Op::Switch(0, 0), Op::Open(0, event), Op::Read(0)];
        run(&history, |_, _| {});
    }
}

#[test]
fn each_program_of_a_task_is_new_to_counters_that_were_off_the_pmu() {
    // Each program in turn leaves a negative counter, and the programs' numbers get longer.
    let mut history = vec![Op::Switch(0, 0), Op::OpenEbb(0, 3)];
    for _ in 0..8 {
        history.extend([
            Op::User(0, UserWrite::Bescr(0)),
            Op::User(0, UserWrite::Counter(5, 4)),
            Op::Run(0, 8, 3, 3),
            Op::Disable(0),
            Op::Exec(0),
            Op::Enable(0),
            Op::Run(0, 2, 1, 3),
        ]);
    }
    run(&history, |_, facility| {
        assert_eq!(facility.mfspr(spr::PMC6), 2);
    });
}

#[test]
fn a_branch_stack_of_a_cpu_has_branches_of_the_program_that_runs() {
    let of_cpu = wish!(
        CYCLES, period: 20, addr: false, registers: false, branches: 1, of_cpu: true
    );
    // The second program runs when the sample is taken, and the BHRB has room for the branches of
    // both.
    let history = [
        Op::Switch(0, 0),
        Op::Open(0, of_cpu),
        Op::Run(0, 8, 1, 1),
        Op::Switch(0, 1),
        Op::Run(0, 16, 1, 1),
    ];
    run(&history, |world, _| {
        assert_eq!(world.open[0].samples.borrow().len(), 1);
    });
}

#[test]
fn a_weight_shows_no_threshold_counter_of_a_program() {
    let weighed = wish!(CYCLES, code: 8, registers: false, addr: false, weight: 2);
    // Both groups need the same MMCRA. The second one belongs to another program, at whose
    // addresses the type in SIER is not a reserved one.
    let history = [
        Op::Switch(0, 0),
        Op::OpenEbb(0, 2),
        Op::User(0, UserWrite::Threshold(0x7ff)),
        Op::Switch(0, 1),
        Op::Exec(0),
        Op::Switch(0, 0),
        Op::Open(1, weighed),
        Op::Switch(0, 1),
        Op::Run(0, 9, 1, 3),
    ];
    run(&history, |world, _| {
        assert_eq!(world.open[1].samples.borrow().len(), 1);
    });
}

#[test]
fn a_program_finds_no_threshold_counter_of_others() {
    // The second task runs nothing, runs without events, opens another group, or opens the same
    // group, with or without a threshold.
    let groups = [Op::OpenThresholdEbb, |task| Op::OpenEbb(task, 2)];
    let others = [
        vec![],
        vec![Op::Run(0, 3, 1, 3)],
        vec![Op::OpenEbb(1, 3), Op::User(0, UserWrite::Threshold(0x7ff))],
        vec![Op::OpenThresholdEbb(1), Op::Run(0, 3, 1, 3)],
        vec![Op::OpenEbb(1, 2), Op::User(0, UserWrite::Threshold(0x7ff))],
    ];
    for (open, other) in groups
        .into_iter()
        .flat_map(|open| others.iter().map(move |other| (open, other)))
    {
        let mut history = vec![
            Op::Switch(0, 0),
            open(0),
            Op::Run(0, 4, 1, 3),
            Op::Switch(0, 1),
        ];
        history.extend_from_slice(other);
        history.extend([Op::Switch(0, 0), Op::Run(0, 4, 1, 3)]);
        // The second task's group is scheduled in again, too.
        history.extend([Op::Switch(0, 1), Op::Run(0, 4, 1, 3)]);
        run(&history, |_, _| {});
    }
}

#[test]
fn a_program_finds_no_threshold_counter_that_counted_while_the_pmu_was_frozen() {
    in_each(Kind::partition, |world, _| {
        // While frozen, the PMU has the MMCRA of the program's group, because v3.1 stops recording
        // branches.
        let mut attr = World::attr(CODES[7].0 | THRESHOLD, 1 << 20);
        attr.set_exclude_kernel(1);
        attr.set_exclude_hv(1);
        attr.sample_type = perf_event_sample_format_PERF_SAMPLE_BRANCH_STACK.into();
        attr.branch_sample_type = branches::sample_type(1, 0);
        attr.sample_max_stack = 32;
        world.step(&Op::Switch(0, 0));
        world.add(attr, (Some(0), None), None);
        let history = [
            Op::Run(0, 4, 1, 3),
            Op::OpenThresholdEbb(1),
            Op::Switch(0, 2),
            Op::Run(0, 3, 1, 3),
            Op::Switch(0, 1),
            Op::Run(0, 4, 1, 3),
        ];
        history.iter().for_each(|op| world.step(op));
    });
}

#[test]
fn an_event_that_leaves_its_counter_negative_causes_no_pm_interrupt() {
    // Code 2001e, and 30002, whose event remains. The first event is closed before its interrupt
    // comes.
    let sampled = wish!(CYCLES, code: 7, registers: false);
    let stays = wish!(sampled, code: 8, period: 0);
    let history = [
        Op::Switch(1, 0),
        Op::Open(0, sampled),
        Op::Open(0, stays),
        Op::Hold(1),
        Op::Close(0),
        Op::Run(1, 3, 1, 3),
    ];
    run(&history, |_, _| {});
}

#[test]
fn an_alert_of_the_kernel_is_not_lost_as_its_program_leaves() {
    // Code 2001e, which counts the kernel, and overflows at each kernel instruction in turn,
    // including those between the read of MMCR0 and the write that freezes the PMU.
    let counts_kernel = 0x60 | 7;
    for left in 1..=60 {
        let history = [
            Op::Switch(0, 0),
            Op::OpenEbb(0, counts_kernel),
            Op::User(0, UserWrite::Bescr(0b11)),
            Op::User(0, UserWrite::Counter(1, left)),
            Op::Switch(0, TASKS as u8),
            Op::Switch(0, 0),
            Op::Run(0, 2, 1, 3),
        ];
        run(&history, |_, facility| {
            let is_handled = facility.mfspr(spr::BESCR) & bescr::PMEO != 0;
            assert_eq!(is_handled, facility.is_negative(spr::PMC1 + 1), "{left}");
        });
    }
}

#[test]
fn a_handler_finds_where_its_alert_was_as_an_event_is_closed() {
    // The counter overflows as the PMU is disabled and enabled for another event of the program.
    let counts_kernel = 0x60 | 7;
    for left in 1..=60 {
        let history = [
            Op::Switch(0, 0),
            Op::OpenEbb(0, counts_kernel),
            Op::OpenEbb(0, 3),
            Op::User(0, UserWrite::Bescr(0b11)),
            Op::User(0, UserWrite::Counter(1, left)),
            Op::Close(1),
            Op::Run(0, 2, 1, 3),
        ];
        run(&history, |_, facility| {
            let is_handled = facility.mfspr(spr::BESCR) & bescr::PMEO != 0;
            assert_eq!(is_handled, facility.is_negative(spr::PMC1 + 1), "{left}");
            assert!(!is_handled || facility.mfspr(spr::SIAR) != 0, "{left}");
        });
    }
}

#[test]
fn no_branch_of_another_partition_is_in_a_stack() {
    // The hypervisor takes the CPU away at each instruction of a switch, which clears the BHRB, and
    // of a sample, which reads it. A dedicated CPU loses nothing.
    let stack = wish!(CYCLES, period: 20, addr: false, registers: false, branches: 1);
    for kind in [Kind::partition, Kind::dedicated_partition] {
        for count in 0..64 {
            let switch = [Op::Switch(0, NOBODY), Op::Switch(0, 0)];
            for (before, at) in [(5, switch.as_slice()), (19, &[])] {
                let begin = [
                    Op::Switch(0, 0),
                    Op::Open(0, stack),
                    Op::Run(0, before, 1, 1),
                ];
                let end = [Op::Run(0, 30, 1, 1), Op::Run(0, 30, 1, 1)];
                let history = [&begin, [Op::PreemptIn(0, count)].as_slice(), at, &end].concat();
                run_on(kind, &history, |world, _| {
                    assert!(!world.open[0].samples.borrow().is_empty());
                });
            }
        }
    }
}

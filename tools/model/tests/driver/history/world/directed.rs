// SPDX-License-Identifier: GPL-2.0

//! Hand-written histories for cases that random ones rarely reach. Each step compares everything,
//! too.

use super::*;
use crate::history::{MACHINE, program_code::marked_at};
use std::sync::PoisonError;

/// Runs a history in a partition of each processor, several times. Then it calls `last` on CPU 0.
pub(super) fn run(history: &[Op], last: impl Fn(&World, &Facility)) {
    run_on(Kind::partition, history, last);
}

/// Runs a history like [`run`], in a partition or on bare metal.
pub fn run_on(kind: fn(Processor) -> Kind, history: &[Op], last: impl Fn(&World, &Facility)) {
    in_each(kind, |world, _| {
        history.iter().for_each(|op| world.step(op));
        let facility = with_machine(|machine| machine.cpus[0].facility.clone());
        last(world, &facility);
    });
}

/// Runs a test on a machine of each processor.
pub(super) fn in_each(kind: fn(Processor) -> Kind, test: impl Fn(&mut World, Kind)) {
    let _one = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    for kind in Kind::of_each(kind) {
        let mut world = World::new(kind, false);
        test(&mut world, kind);
        world.end();
    }
}

/// Number of a task that does not exist: the CPU idles.
pub(super) const NOBODY: u8 = TASKS as u8;

/// Returns a history that switches a program out and in after each of its first `switches`
/// instructions, which take three cycles each. PMC6 becomes negative after `left` of them. At the
/// end the program enables EBBs if they were disabled.
fn switched_often(bescr: u8, left: u32, switches: usize) -> Vec<Op> {
    let mut history = vec![
        Op::Switch(0, 0),
        Op::OpenEbb(0, 3),
        Op::User(0, UserWrite::Bescr(bescr)),
        Op::User(0, UserWrite::Counter(5, left)),
    ];
    for step in 0..14 {
        history.push(Op::Run(0, 1, 3, 3));
        if step < switches {
            history.extend([Op::Switch(0, NOBODY), Op::Switch(0, 0)]);
        }
    }
    if bescr & 0b10 == 0 {
        history.extend([Op::User(0, UserWrite::Bescr(0b11)), Op::Run(0, 2, 1, 3)]);
    }
    history
}

#[test]
fn a_program_gets_its_ebb_wherever_it_is_switched() {
    for left in [1, 2, 3, 4, 10, 20, 30] {
        for switches in 0..14 {
            run(&switched_often(0b11, left, switches), |_, facility| {
                let pmeo = facility.mfspr(spr::BESCR) & bescr::PMEO;
                assert_ne!(pmeo, 0, "{left} left, {switches} switches: no EBB");
            });
        }
    }
}

#[test]
fn an_alert_waits_until_the_program_turns_ebbs_on() {
    // GE (which delays the EBB with PMEO set), PME, or both are off at first. POWER8E delays the
    // alert of a program with both off until the next switch (`Documentation/internals.md`,
    // "Limitations").
    for bescr in [0b10, 0b01, 0b00] {
        for left in [1, 4, 10, 30] {
            for switches in [0, 1, 3, 4, 5, 13] {
                run(&switched_often(bescr, left, switches), |_, facility| {
                    let delays = facility.processor() == Processor::Power8E && bescr == 0;
                    let found = facility.mfspr(spr::BESCR);
                    assert!(
                        delays || found == bescr::PMEO,
                        "{left}, {switches}: {found:#x}"
                    );
                });
            }
        }
    }
}

#[test]
fn an_alert_that_power8_misses_comes_with_no_switch() {
    // According to the architecture an alert occurs at once, because the program enables alerts
    // while its counter is negative. POWER8 raises none, and a switch must not raise it either,
    // because a switch changes nothing for a program.
    let mut history = vec![
        Op::Switch(0, 0),
        Op::OpenEbb(0, 3),
        Op::User(0, UserWrite::Mmcr0(0)),
        Op::User(0, UserWrite::Counter(5, 4)),
        Op::Run(0, 3, 3, 3),
        Op::User(0, UserWrite::Bescr(0b11)),
        Op::User(0, UserWrite::Mmcr0(0b010)),
    ];
    for _ in 0..3 {
        history.extend([Op::Switch(0, NOBODY), Op::Switch(0, 0), Op::Run(0, 1, 1, 3)]);
    }
    run(&history, |_, facility| {
        let is_missed = facility.processor().misses_negative_at_enable();
        let is_handled = facility.mfspr(spr::BESCR) & bescr::PMEO != 0;
        assert_ne!(is_handled, is_missed, "{:?}", facility.processor());
    });
}

#[test]
fn a_handler_finds_its_marked_instruction_after_a_switch() {
    // The EBB occurs at the second marked instruction. The handler is switched out before it has
    // read SIAR. PMAE is off by then, so SIAR keeps its value.
    let history = [
        Op::Switch(0, 0),
        Op::OpenMarkedEbb(0),
        Op::User(0, UserWrite::Bescr(0b11)),
        Op::User(0, UserWrite::Counter(0, 2)),
        Op::Run(0, 9, 1, 10),
        Op::Switch(0, NOBODY),
        Op::Switch(0, 0),
        Op::Run(0, 4, 1, 10),
        Op::Open(1, CYCLES),
        Op::Switch(0, 1),
        Op::Switch(0, 0),
    ];
    run(&history, |_, facility| {
        assert_eq!(
            facility.mfspr(spr::BESCR) & bescr::PMEO,
            bescr::PMEO,
            "no EBB"
        );
        let siar = facility.mfspr(spr::SIAR);
        assert!(siar != 0 && marked_at(siar).is_some(), "SIAR is {siar:#x}");
        assert_ne!(facility.mfspr(spr::MMCRA) & mmcra::SAMPLE_ENABLE, 0);
    });
}

/// Attributes of an event that counts cycles in programs.
pub(super) const CYCLES: Wish = Wish {
    code: 0,
    period: 8,
    exclude_kernel: true,
    exclude_user: false,
    exclude_hv: true,
    exclude_idle: false,
    exclude_host: false,
    disabled: false,
    pinned: false,
    exclusive: false,
    inherit: false,
    inherit_stat: false,
    addr: true,
    registers: true,
    data_src: false,
    weight: 0,
    branches: 0,
    branch_flags: 0,
    member: false,
    of_cpu: false,
    bound: None,
};

#[test]
fn nothing_is_sampled_before_an_instruction_is_marked() {
    let marked = wish!(CYCLES, code: 16, period: 0);
    let member = wish!(CYCLES, registers: false, member: true);
    // The PMU has been used, and a deep idle state of POWER9 leaves arbitrary values in its
    // registers. The first two instructions are not marked, and those that the kernel executed
    // before it enabled marking must not become a sample either.
    let history = [
        Op::Switch(0, 0),
        Op::Open(0, CYCLES),
        Op::Close(0),
        Op::Switch(0, NOBODY),
        Op::Open(0, marked),
        Op::Open(0, member),
        Op::Sleep(0, true),
        Op::Switch(0, 0),
        Op::Run(0, 2, 4, 3),
    ];
    run_on(Kind::bare_metal, &history, |world, facility| {
        assert_eq!(facility.alerts(), 1, "only the event overflows");
        let samples = world.open.last().map(|event| event.samples.borrow());
        assert!(samples.is_some_and(|of| of.len() == 1 && of[0].ip == 0));
        // SIER2 and SIER3 are not checked: the PMU marks an instruction while the driver clears
        // them.
        assert_eq!(facility.mfspr(spr::SIER), 0);
    });
}

#[test]
fn an_interrupt_as_marking_begins_shows_no_instruction() {
    let marked = wish!(CYCLES, code: 16, period: 0);
    // The counter overflows in the kernel, one instruction later with each switch.
    for period in 1..30 {
        let of_kernel = wish!(CYCLES, period, exclude_kernel: false);
        let mut history = vec![
            Op::Switch(0, 0),
            Op::Open(0, marked),
            Op::Open(0, of_kernel),
        ];
        for _ in 0..4 {
            history.extend([Op::Switch(0, NOBODY), Op::Switch(0, 0)]);
        }
        run(&history, |_, facility| assert!(facility.alerts() > 0));
    }
}

#[test]
fn a_sample_shows_nothing_of_the_kernel_to_one_event_and_all_to_the_next() {
    let of_kernel = wish!(CYCLES, code: 7, period: 9, exclude_kernel: false);
    // Both counters overflow as the program enters the kernel, which takes the interrupt.
    let history = [
        Op::Switch(0, 0),
        Op::Open(0, CYCLES),
        Op::Open(0, of_kernel),
        Op::Syscall(0, 1, 2, false),
    ];
    run(&history, |world, _| {
        let samples = world.open.iter().map(|event| event.samples.borrow().len());
        assert_eq!(samples.collect::<Vec<_>>(), [1, 1]);
    });
}

#[test]
fn opening_an_event_changes_no_branch_filter() {
    let all = wish!(CYCLES, registers: false, branches: 1);
    let calls = wish!(all, disabled: true, branches: 1 << 1);
    // The second sample must have the branches since the other event was opened.
    let history = [
        Op::Switch(0, 0),
        Op::Open(0, all),
        Op::Run(0, 8, 1, 1),
        Op::Open(1, calls),
        Op::Run(0, 8, 1, 1),
    ];
    run(&history, |world, _| {
        let samples = world.open.iter().map(|event| event.samples.borrow().len());
        assert_eq!(samples.collect::<Vec<_>>(), [2, 0]);
    });
}

#[test]
fn branches_are_recorded_anew_when_another_event_leaves_with_its_filter() {
    let calls = wish!(CYCLES, registers: false, branches: 1 << 1);
    let all = wish!(calls, period: 60, branches: 1);
    // The sample is taken after two more instructions, and the BHRB has room for more branches.
    let history = [
        Op::Switch(0, 0),
        Op::Open(0, all),
        Op::Open(0, calls),
        Op::Run(0, 6, 1, 1),
        Op::Close(0),
        Op::Run(0, 3, 1, 4),
    ];
    run(&history, |world, _| {
        let samples = world.open.iter().map(|event| event.samples.borrow().len());
        assert_eq!(samples.collect::<Vec<_>>(), [1]);
    });
}

#[test]
fn an_event_that_finds_no_counter_uses_no_branch_stacks() {
    // Codes 500fa, 600f4, 100f0, 200fa, 30002, 4001e.
    let on_each = [2, 3, 4, 6, 8, 9].map(|code| {
        let count = wish!(CYCLES, code, period: 0);
        Op::Open(0, count)
    });
    let seventh = wish!(CYCLES, registers: false, branches: 1);
    let history = [
        &[Op::Switch(0, 0)],
        on_each.as_slice(),
        &[Op::Open(0, seventh)],
    ]
    .concat();
    run(&history, |world, _| {
        let active = world.open.iter().map(|event| event.is_active());
        let expected = [true, true, true, true, true, true, false];
        assert_eq!(active.collect::<Vec<_>>(), expected);
    });
}

/// Codes of events on PMC1 to PMC4.
const ON_FOUR: [u8; 4] = [11, 6, 8, 9];

#[test]
fn events_of_a_task_may_be_counted_by_those_that_need_the_run_latch() {
    // No counter remains for 1e, but 600f4 counts the same in a program, and from v3.1 on
    // everywhere.
    for of_cpu in [false, true] {
        let of = |code, member| wish!(CYCLES, code, period: 0, registers: false, member, of_cpu);
        let [first, others @ ..] = ON_FOUR;
        let mut history = vec![Op::Switch(0, 0), Op::Open(0, of(first, false))];
        history.extend(others.map(|code| Op::Open(0, of(code, true))));
        history.extend([Op::Open(0, of(0, true)), Op::Run(0, 5, 3, 2)]);
        run(&history, |world, facility| {
            let on_pmu = world.open.iter().filter(|event| event.idx() > 0);
            let v31 = facility.processor().isa() >= pmu_model::Isa::V31;
            let expected = if v31 || !of_cpu { 5 } else { 4 };
            assert_eq!((world.open.len(), on_pmu.count()), (expected, expected));
        });
    }
}

#[test]
fn an_event_that_joins_late_resets_no_registers() {
    // When the leader of a group is closed, its members become leaders. The program writes MMCR2
    // before the first of them is enabled, which is then scheduled in ahead of the other.
    let history = [
        Op::OpenEbb(0, 2),
        Op::OpenEbb(0, 4),
        Op::OpenEbb(0, 3),
        Op::Close(0),
        Op::Disable(0),
        Op::Switch(0, 0),
        Op::User(0, UserWrite::Mmcr2(1 << 5)),
        Op::Enable(0),
        Op::Run(0, 2, 1, 3),
    ];
    run(&history, |_, facility| {
        let frozen = facility.mfspr(spr::MMCR2) & mmcr2::USER;
        assert_eq!(frozen, mmcr2::FCP0 >> 45, "FC6P");
    });
}

#[test]
fn an_event_that_joins_a_group_that_ran_resets_no_registers_when_it_is_alone() {
    // The task is not running when the event joins, nor when the leader is closed.
    let history = [
        Op::Switch(0, 0),
        Op::OpenEbb(0, 2),
        Op::User(0, UserWrite::Mmcr2(1 << 5)),
        Op::Run(0, 2, 1, 3),
        Op::Switch(0, NOBODY),
        Op::OpenEbb(0, 3),
        Op::Close(0),
        Op::Switch(0, 0),
        Op::Run(0, 2, 1, 3),
    ];
    run(&history, |_, facility| {
        let frozen = facility.mfspr(spr::MMCR2) & mmcr2::USER;
        assert_eq!(frozen, mmcr2::FCP0 >> 45, "FC6P");
    });
}

/// Returns a partition in which hardware changes SDAR while the PMU is frozen.
fn where_sdar_changes(processor: Processor) -> Kind {
    Kind {
        sdar_changes: true,
        ..Kind::partition(processor)
    }
}

#[test]
fn a_sample_shows_no_data_that_another_program_accessed_while_the_pmu_was_frozen() {
    // The other program has no events. Some of the instructions that end a period access no data.
    for others in 1..30 {
        let mut history = vec![Op::Switch(0, 0), Op::Open(0, CYCLES)];
        for _ in 0..4 {
            history.extend([Op::Switch(0, 1), Op::Run(0, others, 1, 6)]);
            history.extend([Op::Switch(0, 0), Op::Run(0, others % 9 + 1, 5, 6)]);
        }
        run_on(where_sdar_changes, &history, |world, _| {
            assert!(!world.open[0].samples.borrow().is_empty());
        });
    }
}

#[test]
fn an_alert_of_the_kernel_comes_to_a_program_that_has_lost_its_group() {
    // Code 2001e, which counts the kernel, overflows in the kernel as the group is closed. The
    // program has no group when it gets the EBB, and opens a new one afterwards.
    let counts_kernel = 0x60 | 7;
    for left in 1..=40 {
        let history = [
            Op::Switch(0, 0),
            Op::OpenEbb(0, counts_kernel),
            Op::User(0, UserWrite::Bescr(0b11)),
            Op::User(0, UserWrite::Counter(1, left)),
            Op::Close(0),
            Op::Run(0, 2, 1, 3),
            Op::OpenEbb(0, 3),
        ];
        run(&history, |_, _| {});
    }
}

#[test]
fn a_sample_without_an_alert_is_where_its_interrupt_came() {
    let of_kernel = wish!(CYCLES, exclude_kernel: false, registers: false);
    let other = wish!(of_kernel, period: 0);
    // Disabling the PMU drops the alert. POWER8 raises no other, so the driver makes an interrupt
    // pending. The instruction that the PMU sampled in the meantime must not become a sample.
    let mut history = vec![Op::Switch(0, 0), Op::Open(0, of_kernel)];
    for _ in 0..12 {
        history.extend([Op::Hold(0), Op::Open(0, other), Op::Close(1)]);
    }
    run(&history, |world, _| {
        assert!(!world.open[0].samples.borrow().is_empty());
    });
}

#[test]
fn a_member_starts_at_0_whatever_its_program_wrote_to_the_counter_before() {
    in_each(Kind::partition, |world, kind| {
        world.step(&Op::Switch(0, 0));
        // One event on PMC1, then one on PMC3.
        world.step(&Op::OpenEbb(0, 4));
        with_machine(|machine| machine.cpus[0].facility.mtspr(spr::PMC1 + 2, 77));
        world.step(&Op::OpenEbb(0, 8));
        let pmc3 = with_machine(|machine| machine.cpus[0].facility.mfspr(spr::PMC1 + 2));
        assert_eq!(pmc3, 0, "{:?}", kind.processor);
    });
}

#[test]
fn a_counter_whose_event_was_closed_is_cleared_whatever_its_program_left_there() {
    for left in [77, 0] {
        let history = [
            Op::Switch(0, 0),
            // Events on PMC1 and PMC3.
            Op::OpenEbb(0, 4),
            Op::OpenEbb(0, 8),
            Op::User(0, UserWrite::Mmcr0(0b001)),
            Op::User(0, UserWrite::Counter(2, left)),
            Op::Close(1),
        ];
        run(&history, |_, facility| {
            assert_eq!(facility.mfspr(spr::PMC1 + 2), 0, "left {left}");
        });
    }
}

#[test]
fn a_handler_finds_its_marked_instruction_after_another_task_ran_without_events() {
    // The PMU is frozen while that task runs, and must not mark its instructions.
    let history = [
        Op::Switch(0, 0),
        Op::OpenMarkedEbb(0),
        Op::User(0, UserWrite::Bescr(0b11)),
        Op::User(0, UserWrite::Counter(0, 2)),
        Op::Run(0, 9, 1, 10),
        Op::Switch(0, 1),
        Op::Run(0, 30, 1, 3),
        Op::Switch(0, 0),
        Op::Run(0, 4, 1, 10),
    ];
    run(&history, |_, _| {});
}

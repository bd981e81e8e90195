// SPDX-License-Identifier: GPL-2.0

//! The states in which an event counts: in the kernel, in the hypervisor, and in an idle CPU, whose
//! run latch is off. The expected counts are written down here, independent of what histories
//! compare.

use super::{
    directed::{CYCLES, in_each},
    *,
};
use pmu_model::Isa;

/// Number of instructions of a step, of two cycles each.
const INSTRUCTIONS: u8 = 5;

/// Attributes of an event of a CPU that only counts.
const OF_CPU: Wish = wish!(
    CYCLES, period: 0, exclude_kernel: false, exclude_hv: false, addr: false, registers: false,
    of_cpu: true
);

/// Checks the count of an event on an idle CPU in a step, on each kind of machine, against
/// `expected`.
fn counts(kind: fn(Processor) -> Kind, wish: Wish, op: Op, expected: impl Fn(Kind) -> u8) {
    in_each(kind, |world, kind| {
        world.step(&Op::Open(0, wish));
        let counter = |world: &World| World::counter(&world.open[0]).expect("a counter");
        let before = counter(world);
        world.step(&op);
        let counted = counter(world) - before;
        let processor = kind.processor;
        assert_eq!(
            counted,
            expected(kind).into(),
            "{processor:?}: {wish:?}, {op:?}"
        );
    });
}

#[test]
fn an_idle_cpu_counts_what_needs_no_run_latch() {
    let cycles = 2 * INSTRUCTIONS;
    let v31 = |kind: Kind| kind.processor.isa() >= Isa::V31;
    // Codes 1e, 2, 500fa, 600f4 and 400fa. From v3.1 on MMCR0[CC56RUN] lets the third and the
    // fourth count.
    let codes: [(u8, u8, u8); 5] = [
        (0, cycles, cycles),
        (1, INSTRUCTIONS, INSTRUCTIONS),
        (2, 0, INSTRUCTIONS),
        (3, 0, cycles),
        (10, 0, 0),
    ];
    for (code, before_v31, since) in codes {
        let counted = |kind| if v31(kind) { since } else { before_v31 };
        for nmi in [false, true] {
            let wish = wish!(OF_CPU, code);
            let idle = Op::Idle(0, INSTRUCTIONS, nmi);
            counts(Kind::partition, wish, idle, counted);
            counts(Kind::bare_metal, wish, idle, counted);
            let excluded = wish!(wish, exclude_idle: true);
            counts(Kind::partition, excluded, idle, |_| 0);
            counts(Kind::bare_metal, excluded, idle, |_| 0);
            // The run latch is on in an interrupt.
            let busy = Op::Kernel(0, INSTRUCTIONS, false);
            let all = if [0, 3].contains(&code) {
                cycles
            } else {
                INSTRUCTIONS
            };
            counts(Kind::partition, excluded, busy, |_| all);
        }
    }
}

/// All code that runs here is part of the host: a guest has a PMU of its own, or none.
#[test]
fn an_event_that_excludes_the_host_counts_nothing() {
    let see = |world: &mut World, kind: Kind| {
        for (period, of_cpu) in [(0, false), (0, true), (8, false), (8, true)] {
            let excluded = wish!(OF_CPU, exclude_host: true, period, of_cpu);
            let control = wish!(excluded, exclude_host: false);
            let work = [
                Op::Switch(0, 0),
                Op::Open(0, excluded),
                Op::Open(0, control),
                Op::Run(0, 20, 1, 1),
                Op::Syscall(0, INSTRUCTIONS, 1, false),
                Op::Read(0),
                Op::Read(1),
            ];
            work.iter().for_each(|op| world.step(op));
            let [host, all] = [0, 1].map(|number| &world.open[number]);
            let seen = [host, all].map(|event| (event.count(), event.samples.borrow().len()));
            assert_eq!(seen[0], (0, 0), "{:?}: {excluded:?}", kind.processor);
            let (count, samples) = seen[1];
            let is_counted = count > 0 && samples >= usize::from(period > 0);
            assert!(is_counted, "{:?}: {control:?}", kind.processor);
            [Op::Close(0), Op::Close(0)]
                .iter()
                .for_each(|op| world.step(op));
        }
    };
    in_each(Kind::partition, see);
    in_each(Kind::bare_metal, see);
}

#[test]
fn the_hypervisor_is_counted_unless_it_is_excluded() {
    let cycles = 2 * INSTRUCTIONS;
    let (of_kernel, of_hv) = (
        Op::Kernel(0, INSTRUCTIONS, false),
        Op::Hypercall(0, INSTRUCTIONS),
    );
    for (exclude_kernel, exclude_hv) in [(false, false), (false, true), (true, false), (true, true)]
    {
        let wish = wish!(OF_CPU, exclude_kernel, exclude_hv);
        let counted = |excluded: bool| move |_: Kind| if excluded { 0 } else { cycles };
        counts(Kind::partition, wish, of_kernel, counted(exclude_kernel));
        counts(Kind::partition, wish, of_hv, counted(exclude_hv));
        // On bare metal the kernel is the hypervisor.
        counts(Kind::bare_metal, wish, of_kernel, counted(exclude_kernel));
        counts(Kind::bare_metal, wish, of_hv, counted(exclude_kernel));
    }
    // Before v3.1 branches are recorded wherever the event counts.
    let branches = wish!(OF_CPU, exclude_kernel: true, period: 1000, branches: 1);
    counts(Kind::partition, branches, of_hv, |kind| {
        if kind.processor.isa() >= Isa::V31 {
            cycles
        } else {
            0
        }
    });
}

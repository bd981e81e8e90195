// SPDX-License-Identifier: GPL-2.0

//! A program with EBBs is switched out and in again at every instant around its alert: it gets one
//! EBB, no more and no less, and its counter is what one of its own would be.

use crate::{
    machine::{Kind, boot, with_cpu},
    power::{
        cache::PmuCache,
        machine,
        pmu::{self, LocalPmu, RegisterSet},
        regs::{Bescr, Mmcr0, Mmcr2},
        thread::CurrentThread,
    },
};
use kernel::bindings::{set_current, task_struct};
use pmu_model::{Context, Instruction, Isa, Processor, bescr, mmcr0, mmcr2, spr};

/// The program's handler, and where it runs.
pub const HANDLER: u64 = 0x5000;
pub const TEXT: u64 = 0x1000;
pub const NEGATIVE: u64 = 0x8000_0000;

/// Cycles that an instruction of the program takes.
const CYCLES: u32 = 3;

/// MMCR0 as `driver/enable.rs` starts the PMU for an EBB group with PMC6, which counts in problem
/// state only (`exclude_kernel`), and in all states.
fn kernel_mmcr0() -> Mmcr0 {
    Mmcr0::from(0).with_const_pmcjce::<1>().alerting()
}

fn register_set(processor: Processor) -> RegisterSet {
    if processor.isa() >= Isa::V31 {
        RegisterSet::V31
    } else {
        RegisterSet::V207
    }
}

/// The steps of `pmu_disable` in `driver/enable.rs`, for a program. Returns PMC6.
pub fn switch_out(local: &LocalPmu<'_>, cache: &PmuCache, processor: Processor) -> u32 {
    with_cpu(|cpu| {
        cpu.facility.context.problem = false;
        cpu.facility.context.ee = false;
    });
    let (mmcr0, mmcr2) = cache.freeze_program(local, processor.isa() >= Isa::V31, true);
    assert_eq!(mmcr0.ebe(), 1);
    let thread = CurrentThread::new(local);
    thread.save_mmcr0(mmcr0);
    thread.save_mmcr2(mmcr2);
    thread.save_sampled(cache, register_set(processor), 0);
    local.clear_siar_sdar();
    let pmc6 = pmu::read_pmc(5);
    cache.pmc_was_read(5, pmc6);
    cache.write_pmc(5, 0);
    pmc6
}

/// The steps of `pmu_enable` there, then the return to the program at `address`. Returns where it
/// goes on.
pub fn switch_in(
    local: &LocalPmu<'_>,
    cache: &PmuCache,
    processor: Processor,
    mmcr2: u64,
    pmc6: u32,
    at: u64,
) -> u64 {
    let thread = CurrentThread::new(local);
    cache.write_pmc(5, pmc6);
    let user = thread.mmcr0();
    if user.pmao() == 1 && Bescr::read().ge() == 1 && machine::has_pmao_bug() {
        local.restore_pmao();
        cache.forget_sampled();
    }
    thread.restore_sampled(cache, register_set(processor));
    cache.write::<Mmcr2>(mmcr2 | thread.mmcr2());
    let mmcr0 = kernel_mmcr0().for_ebb(true);
    mmcr0.with_program(user.user()).write();
    cache.started(0b11_0000);
    with_cpu(|cpu| cpu.facility.enter_problem_state(at))
}

/// The instruction before which the program turns EBBs on, if they are off at first.
const ENABLES: usize = 42;

/// The length of a history in instructions of the program.
const STEPS: usize = ENABLES + 2;

/// Runs the program for `STEPS` instructions, switching it out and in after each of the first
/// `switches`. BESCR is `bescr` at first. Returns the EBBs it got and the cycles it counted.
fn history(
    processor: Processor,
    bescr: u64,
    mmcr2: u64,
    left: u64,
    switches: usize,
) -> (usize, u64) {
    // What is undefined differs from one history to the next.
    boot(Kind {
        seed: left * STEPS as u64 + switches as u64,
        ..Kind::partition(processor)
    });
    let mut task = task_struct::default();
    set_current(&raw mut task);
    // SAFETY: There are no interrupts on the host but those that the test makes.
    let local = unsafe { LocalPmu::new() };
    let thread = CurrentThread::new(&local);
    thread.reset();
    with_cpu(|cpu| {
        cpu.facility.mtspr(spr::BESCR, bescr);
        cpu.facility.mtspr(spr::EBBHR, HANDLER);
    });
    let start = NEGATIVE - left;
    let cache = PmuCache::default();
    let started = switch_in(&local, &cache, processor, mmcr2, start as u32, TEXT);
    let (mut next, mut ebbs) = (started, 0);
    for step in 0..STEPS {
        if step == ENABLES {
            let on = (bescr::GE | bescr::PME) & !bescr;
            with_cpu(|cpu| cpu.facility.problem_mtspr(spr::BESCRS, on)).expect("open");
        }
        let instruction = Instruction {
            cycles: CYCLES,
            ..Instruction::at(next)
        };
        let executed = with_cpu(|cpu| cpu.facility.execute(&instruction));
        ebbs += usize::from(executed.ebb);
        next = executed.next;
        if step < switches {
            let pmc6 = switch_out(&local, &cache, processor);
            // `__switch_to()` saves and restores these; another task runs meanwhile.
            let ebb = [spr::BESCR, spr::EBBHR, spr::EBBRR];
            with_cpu(|cpu| {
                let saved = ebb.map(|number| cpu.facility.mfspr(number));
                for number in ebb {
                    cpu.facility.mtspr(number, 0);
                }
                let other = &mut cpu.facility;
                other.context = Context::PROGRAM;
                assert!(!other.execute(&Instruction::at(TEXT)).ebb && !other.interrupt_is_due());
                assert!(other.problem_mtspr(spr::PMC1 - spr::PROBLEM, 0).is_err());
                assert!(other.problem_mfbhrbe(0).is_err());
                assert_eq!(other.mfspr(spr::MMCR0) & mmcr0::EBE, 0);
                assert_eq!(other.mfspr(spr::SIAR) | other.mfspr(spr::SDAR), 0);
                other.context = Context::KERNEL;
                for (number, value) in ebb.into_iter().zip(saved) {
                    cpu.facility.mtspr(number, value);
                }
            });
            let resumed = switch_in(&local, &cache, processor, mmcr2, pmc6, next);
            ebbs += usize::from(resumed != next);
            next = resumed;
        }
        let interrupt = with_cpu(|cpu| cpu.facility.interrupt_is_due());
        assert!(!interrupt, "{processor:?}: an interrupt under EBE");
    }
    let pmc6 = with_cpu(|cpu| cpu.facility.mfspr(spr::PMC6));
    with_cpu(|cpu| assert_eq!(cpu.facility.context, Context::PROGRAM));
    // The program finds its alert, and a PMU that stands still.
    let mmcr0 = with_cpu(|cpu| cpu.facility.problem_mfspr(spr::MMCR0 - spr::PROBLEM));
    assert_eq!(
        mmcr0,
        Ok(mmcr0::FC | mmcr0::PMAO),
        "{processor:?} {left} {switches}"
    );
    (ebbs, pmc6 - start)
}

/// Runs all histories of each processor. Each must end with one EBB, unless it is `lost`.
fn all(
    bescr: u64,
    mmcr2: u64,
    lost: impl Fn(Processor, u64, usize) -> bool,
    counts: impl Fn(u64, u64) -> bool,
) {
    for processor in Processor::ALL {
        for left in 1..=40 {
            for switches in 0..=ENABLES + 2 {
                let (ebbs, counted) = history(processor, bescr, mmcr2, left, switches);
                let case = format!("{processor:?}, {left} left, {switches} switches");
                assert_eq!(
                    ebbs,
                    usize::from(!lost(processor, left, switches)),
                    "{case}"
                );
                assert!(counts(left, counted), "{case}: counted {counted}");
            }
        }
    }
}

/// The counter holds what it would without switches.
fn exact(left: u64, counted: u64) -> bool {
    counted == left.next_multiple_of(CYCLES.into())
}

/// FC6S: `exclude_kernel`.
pub const EXCLUDE_KERNEL: u64 = mmcr2::FCS >> 45;

#[test]
fn a_program_gets_its_ebb_wherever_it_is_switched() {
    let none = |_, _, _| false;
    all(bescr::GE | bescr::PME, EXCLUDE_KERNEL, none, exact);
}

#[test]
fn an_alert_in_the_middle_of_a_switch_is_not_lost() {
    // The counter counts the kernel's instructions too, so it overflows at any of them.
    let none = |_, _, _| false;
    all(bescr::GE | bescr::PME, 0, none, |left, counted| {
        counted >= left
    });
}

#[test]
fn an_alert_waits_until_the_program_turns_ebbs_on() {
    let none = |_, _, _| false;
    // PMEO goes with the task, so with PME on POWER8E loses nothing.
    all(bescr::PME, EXCLUDE_KERNEL, none, exact);
    // GE is what the driver goes by when it raises the alert anew.
    all(bescr::GE, EXCLUDE_KERNEL, none, exact);
}

#[test]
fn power8e_delays_an_alert_of_a_program_with_ebbs_off() {
    // Documentation/internals.md, "Limitations": until the program is switched once more after it
    // turned EBBs on.
    let lost = |processor, left: u64, switches| {
        processor == Processor::Power8E
            && left.div_ceil(CYCLES.into()) <= switches as u64
            && switches <= ENABLES
    };
    all(0, EXCLUDE_KERNEL, lost, exact);
}

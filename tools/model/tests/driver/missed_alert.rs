// SPDX-License-Identifier: GPL-2.0

//! A program turns alerts on while its counter is negative. By the architecture that is an alert at
//! once. POWER8 raises none, and a switch neither: it changes nothing for a program.

use crate::{
    machine::{Kind, boot, with_cpu},
    power::{cache::PmuCache, pmu::LocalPmu, thread::CurrentThread},
    switch::{EXCLUDE_KERNEL, HANDLER, NEGATIVE, TEXT, switch_in, switch_out},
};
use kernel::bindings::{set_current, task_struct};
use pmu_model::{Context, Instruction, bescr, mmcr0, spr};

/// The program executes an instruction. Returns where it goes on, and whether that is an EBB.
fn step(at: u64) -> (u64, bool) {
    let executed = with_cpu(|cpu| cpu.facility.execute(&Instruction::at(at)));
    (executed.next, executed.ebb)
}

#[test]
fn an_alert_that_power8_misses_comes_with_no_switch() {
    for kind in Kind::of_each(Kind::partition) {
        boot(kind);
        let processor = kind.processor;
        let mut task = task_struct::default();
        set_current(&raw mut task);
        // SAFETY: There are no interrupts on the host but those that the test makes.
        let local = unsafe { LocalPmu::new() };
        CurrentThread::new(&local).reset();
        with_cpu(|cpu| {
            cpu.facility.mtspr(spr::BESCR, bescr::GE | bescr::PME);
            cpu.facility.mtspr(spr::EBBHR, HANDLER);
        });
        // PMAE is set, as for the first event of a program, and PMC6 is negative.
        let cache = PmuCache::default();
        let mut next = switch_in(
            &local,
            &cache,
            processor,
            EXCLUDE_KERNEL,
            NEGATIVE as u32 + 5,
            TEXT,
        );
        let missed = processor.misses_negative_at_enable();
        assert_eq!(next, if missed { TEXT } else { HANDLER }, "{processor:?}");
        // One EBB at most, and no other by further switches.
        for _ in 0..3 {
            let pmc6 = switch_out(&local, &cache, processor);
            assert_eq!(
                switch_in(&local, &cache, processor, EXCLUDE_KERNEL, pmc6, next),
                next
            );
            let ebb;
            (next, ebb) = step(next);
            assert!(!ebb, "{processor:?}");
        }
        with_cpu(|cpu| {
            assert_eq!(cpu.facility.context, Context::PROGRAM);
            let mmcr0 = cpu.facility.problem_mfspr(spr::MMCR0 - spr::PROBLEM);
            let frozen = mmcr0::FC | mmcr0::PMAO;
            assert_eq!(mmcr0, Ok(if missed { mmcr0::PMAE } else { frozen }));
        });
    }
}

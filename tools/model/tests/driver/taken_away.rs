// SPDX-License-Identifier: GPL-2.0

//! The hypervisor takes a CPU away: what another partition left in the BHRB gets into no branch
//! stack, and a PMU that comes back with counters running is frozen before it is programmed.

use crate::machine::{Cpu, Kind, boot, with_cpu};
use crate::power::{bhrb::Bhrb, pmu::LocalPmu, regs::Mmcr0};
use pmu_model::{Branch, BranchForm, Context, FOREIGN, Instruction, Isa, mmcr0, mmcra, spr};

const FROM: u64 = 0x1000;
const KERNEL_TEXT: u64 = 0xc000_0000_0001_0000;

/// A CPU that records the branches of a program, and the count of dispatches from the start.
fn recording(kind: Kind) -> (LocalPmu<'static>, u32) {
    boot(kind);
    // SAFETY: There are no interrupts on the host but those that the test makes.
    let local = unsafe { LocalPmu::new() };
    let dispatches = local.clear_bhrb();
    with_cpu(|cpu| {
        cpu.lppaca.pmcregs_in_use = true;
        let mmcra = cpu.facility.mfspr(spr::MMCRA) & !mmcra::BHRBRD;
        cpu.facility.mtspr(spr::MMCRA, mmcra);
    });
    Mmcr0::from(0).alerting().write();
    (local, dispatches)
}

/// A program takes a branch.
fn branch() {
    with_cpu(|cpu| {
        cpu.facility.synchronize();
        let context = core::mem::replace(&mut cpu.facility.context, Context::PROGRAM);
        cpu.facility.execute(&Instruction {
            branch: Some(Branch::taken(BranchForm::I, 0x2000)),
            ..Instruction::at(FROM)
        });
        cpu.facility.context = context;
    });
}

/// The BHRB records no more.
fn stop() {
    with_cpu(|cpu| cpu.facility.mtspr(spr::MMCR0, mmcr0::FC));
}

fn take_away() {
    with_cpu(Cpu::preempt);
}

#[test]
fn branches_are_read_while_the_cpu_is_ours() {
    for kind in Kind::of_each(Kind::partition) {
        let (_local, dispatches) = recording(kind);
        branch();
        branch();
        stop();
        assert_eq!(Bhrb::new().read(dispatches), Some([FROM; 2].as_slice()));
    }
}

#[test]
fn nothing_is_read_once_the_cpu_was_taken_away() {
    for kind in Kind::of_each(Kind::partition) {
        let (local, dispatches) = recording(kind);
        branch();
        take_away();
        branch();
        stop();
        // Behind the program's branch the BHRB has those of somebody else.
        with_cpu(|cpu| assert_eq!(cpu.facility.mfbhrbe(1), FOREIGN));
        for _ in 0..2 {
            assert_eq!(Bhrb::new().read(dispatches), None);
        }
        // Cleared, it has the program's alone again.
        let dispatches = local.clear_bhrb();
        Mmcr0::from(0).alerting().write();
        branch();
        stop();
        assert_eq!(Bhrb::new().read(dispatches), Some([FROM].as_slice()));
    }
}

#[test]
fn all_is_read_of_a_dedicated_cpu_that_was_taken_away() {
    for kind in Kind::of_each(Kind::dedicated_partition) {
        let (_local, dispatches) = recording(kind);
        branch();
        take_away();
        branch();
        stop();
        let entries = [FROM; 2];
        assert_eq!(Bhrb::new().read(dispatches), Some(entries.as_slice()));
    }
}

#[test]
fn a_partition_that_ran_while_the_bhrb_was_cleared_is_seen() {
    for kind in Kind::of_each(Kind::partition) {
        for instructions in 0..4 {
            let (local, _) = recording(kind);
            with_cpu(|cpu| cpu.preempted_in = Some(instructions));
            let dispatches = local.clear_bhrb();
            let was_preempted = with_cpu(|cpu| cpu.preempted_in.take().is_none());
            // Cleared by then, the BHRB has the other partition's branches.
            assert!(was_preempted || instructions > 0);
            branch();
            // While it records, what is read is undefined.
            stop();
            let expected = (!was_preempted).then_some([FROM].as_slice());
            assert_eq!(Bhrb::new().read(dispatches), expected, "{instructions}");
        }
    }
}

#[test]
fn a_partition_that_ran_while_the_bhrb_was_read_is_seen() {
    for kind in Kind::of_each(Kind::partition) {
        for instructions in 0..4 {
            let (_local, dispatches) = recording(kind);
            branch();
            stop();
            with_cpu(|cpu| cpu.preempted_in = Some(instructions));
            let mut bhrb = Bhrb::new();
            let read = bhrb.read(dispatches);
            let was_preempted = with_cpu(|cpu| cpu.preempted_in.take().is_none());
            assert!(was_preempted || instructions > 0);
            let expected = (!was_preempted).then_some([FROM].as_slice());
            assert_eq!(read, expected, "{instructions}");
        }
    }
}

#[test]
fn a_pmu_that_is_turned_on_stands_still_whatever_was_left_in_it() {
    for kind in Kind::of_each(Kind::partition) {
        boot(kind);
        let processor = kind.processor;
        // SAFETY: There are no interrupts on the host but those that the test makes.
        let local = unsafe { LocalPmu::new() };
        let v31 = processor.isa() >= Isa::V31;
        with_cpu(|cpu| {
            cpu.facility.mtspr(spr::MMCR1, 0x0202_0202);
            cpu.facility.mtspr(spr::PMC1, 0x7fff_ff00);
            // Counters run, alerts are on, and programs may write.
            let running = mmcr0::PMAE | mmcr0::PMC1CE | 0b10 << 18;
            cpu.facility.mtspr(spr::MMCR0, running);
        });
        local.turn_on(v31);
        with_cpu(|cpu| {
            assert!(cpu.lppaca.pmcregs_in_use);
            let closed = if v31 { mmcr0::PMCCEXT } else { 0 };
            let expected = mmcr0::FC | 0b01 << 18 | closed;
            assert_eq!(cpu.facility.mfspr(spr::MMCR0), expected, "{processor:?}");
            let before = cpu.facility.mfspr(spr::PMC1);
            cpu.facility.execute(&Instruction::at(KERNEL_TEXT));
            assert_eq!(cpu.facility.mfspr(spr::PMC1), before);
        });
    }
}

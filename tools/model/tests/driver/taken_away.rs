// SPDX-License-Identifier: GPL-2.0

//! A test of a CPU that the hypervisor took away: if its PMU is given back with counters that run,
//! it is frozen before it is programmed.

use crate::machine::{Kind, boot, with_cpu};
use crate::power::pmu::LocalPmu;
use pmu_model::{Instruction, Isa, mmcr0, spr};

const KERNEL_TEXT: u64 = 0xc000_0000_0001_0000;

#[test]
fn a_pmu_that_is_turned_on_stands_still_whatever_was_left_in_it() {
    for kind in Kind::of_each(Kind::partition) {
        boot(kind);
        let processor = kind.processor;
        // SAFETY: The host has no interrupts except those that the test makes.
        let local = unsafe { LocalPmu::new() };
        let v31 = processor.isa() >= Isa::V31;
        with_cpu(|cpu| {
            cpu.facility.mtspr(spr::MMCR1, 0x0202_0202);
            cpu.facility.mtspr(spr::PMC1, 0x7fff_ff00);
            // Counters run, alerts are enabled, and programs may write.
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

// SPDX-License-Identifier: GPL-2.0

//! Alerts: when they occur and what they change.
//!
//! A negative counter is a condition, which PMC1CE or PMCjCE enables. An enabled condition, or a
//! time base event that TBEE enables, freezes the counters (FCECE) or starts them (TRIGGER), and
//! causes an alert if PMAE is set.

use crate::{
    Facility, Fault,
    facility::NEGATIVE,
    fields::{mmcr0, spr},
    sampling::Known,
};

impl Facility {
    /// Writes MMCR0. Writing PMAO as 1 creates an exception, writing it as 0 ends it.
    ///
    /// \[kernel\] `pmao_restore_workaround()`: "this should generate an exception". On POWER8E the
    /// write creates no exception, and an existing one remains: \[kernel\] there, and \[KVM\]
    /// `kvmppc_fix_pmao`.
    pub(crate) fn write_mmcr0(&mut self, value: u64) {
        self.mmcr0 = value;
        if value & mmcr0::PMAE != 0 {
            self.known = Known::NONE;
        }
        if value & (mmcr0::PMAE | mmcr0::EBE) != mmcr0::PMAE {
            self.delayed_alert = None;
        }
        if value & mmcr0::PMAO == 0 {
            self.exception = false;
        } else if !self.processor.ignores_pmao_write() {
            self.exception = true;
        }
    }

    /// Returns whether a negative value of a counter is an enabled condition.
    ///
    /// \[kernel\] `asm/reg.h`; \[microwatt\] `pmu_2`, also for PMCC 0b11, with which PMC5 and PMC6
    /// cause no alerts.
    pub(crate) fn is_condition_enabled(&self, pmc: usize) -> bool {
        let enable = if pmc == 0 {
            mmcr0::PMC1CE
        } else {
            mmcr0::PMCJCE
        };
        self.mmcr0 & enable != 0 && !self.is_outside(pmc)
    }

    /// Returns whether an enabled condition exists that the facility reacts to.
    ///
    /// A condition exists as long as a counter is negative, so enabling the condition or alerts
    /// causes an alert at once (\[microwatt\] `pmu_2`; \[KVM\] `kvmhv_save_guest_pmu`, which calls
    /// the lack of this a fault of POWER8). POWER8 reacts only when a counter becomes negative;
    /// `before` has the counters' previous values. POWER8 also reacts when software makes a counter
    /// negative: \[memory\]. Issue 18 of github.com/paflib/paflib contradicts that: a program that
    /// wrote 0x80000000 to PMC1 got no EBB. No code may rely on either behaviour.
    fn condition_exists(&self, before: [u32; 6]) -> bool {
        (0..6).any(|pmc| {
            let became = before[pmc] < NEGATIVE || !self.processor.misses_negative_at_enable();
            self.pmc[pmc] >= NEGATIVE && became && self.is_condition_enabled(pmc)
        })
    }

    /// Reacts to negative counters. `before` has the counters' previous values.
    pub(crate) fn raise_alerts(&mut self, before: [u32; 6]) {
        if self.condition_exists(before) && !self.delay_alert() {
            self.condition_or_event();
        }
        // TRIGGER ends with a negative PMC1, whether or not that is an enabled condition.
        // [microwatt] `pmu_1`.
        if self.pmc[0] >= NEGATIVE {
            self.mmcr0 &= !mmcr0::TRIGGER;
        }
    }

    /// Handles a change from 0 to 1 of the time base bit that MMCR0\[TBSEL\] selects.
    ///
    /// \[microwatt\] `pmu_2`.
    pub fn time_base_event(&mut self) {
        if self.mmcr0 & mmcr0::TBEE != 0 {
            self.condition_or_event();
            self.raise_event_based_exception();
        }
    }

    /// Handles an enabled condition or event.
    ///
    /// \[microwatt\] `pmu_1`: if TRIGGER is set it starts the counters, otherwise it freezes them
    /// if FCECE is set. Both happen even if alerts are disabled. If PMAE is set an alert occurs,
    /// which clears PMAE and sets PMAO.
    pub(crate) fn condition_or_event(&mut self) {
        if self.mmcr0 & mmcr0::TRIGGER != 0 {
            self.mmcr0 &= !mmcr0::TRIGGER;
        } else if self.mmcr0 & mmcr0::FCECE != 0 && !Fault::Freeze.is_on() {
            self.mmcr0 |= mmcr0::FC;
        }
        if self.mmcr0 & mmcr0::PMAE != 0 {
            // PMAQ: [microwatt].
            let ended = if Fault::Alert.is_on() { 0 } else { mmcr0::PMAE };
            self.mmcr0 &= !(ended | mmcr0::PMAQ);
            self.mmcr0 |= mmcr0::PMAO;
            self.exception = true;
            self.alerts += 1;
            self.sample_alert();
        }
    }

    /// Returns how many alerts have occurred.
    pub fn alerts(&self) -> u64 {
        self.alerts
    }

    /// Returns whether the register with this number is a negative counter.
    pub fn is_negative(&self, number: u32) -> bool {
        (spr::PMC1..=spr::PMC6).contains(&number) && self.mfspr(number) >= NEGATIVE.into()
    }
}

/// Tests of rules that only POWER8 and POWER8E have; the comparison with RTL (`tests/rtl`) covers
/// the others.
#[cfg(test)]
mod tests {
    use crate::{Facility, Instruction, Processor, mmcr0::*, spr};

    const ENABLED: u64 = PMAE | FCECE | PMC1CE | PMCJCE;
    const NEGATIVE: u64 = 0x8000_0000;

    #[test]
    fn enabling_alerts_with_a_negative_counter_causes_one_but_on_power8() {
        for processor in Processor::ALL {
            let mut facility = Facility::new(processor);
            facility.mtspr(spr::PMC1, NEGATIVE + 5);
            facility.mtspr(spr::MMCR0, ENABLED);
            let power8 = processor.misses_negative_at_enable();
            assert_eq!(facility.mfspr(spr::MMCR0) & PMAO == 0, power8);
            assert_eq!(facility.mfspr(spr::MMCR0) & FC == 0, power8);
        }
    }

    #[test]
    fn pmao_makes_and_ends_an_exception_but_does_not_make_one_on_power8e() {
        for processor in Processor::ALL {
            let mut facility = Facility::new(processor);
            facility.context.ee = true;
            facility.mtspr(spr::MMCR0, FC | PMAO);
            assert_eq!(facility.interrupt_is_due(), processor != Processor::Power8E);
            facility.mtspr(spr::MMCR0, FC);
            assert!(!facility.interrupt_is_due());
        }
    }

    #[test]
    fn an_exception_survives_a_write_of_pmao_on_power8e() {
        // This repeats the kernel's workaround, `pmao_restore_workaround()`.
        let mut facility = Facility::new(Processor::Power8E);
        facility.mtspr(spr::PMC6, NEGATIVE - 2);
        facility.mtspr(spr::MMCR0, PMAE | PMCJCE | PMAO);
        facility.execute(&Instruction::at(0xc000_0000_0000_1000));
        facility.execute(&Instruction::at(0xc000_0000_0000_1004));
        facility.mtspr(spr::MMCR0, FC | PMAO);
        facility.mtspr(spr::PMC6, 0);
        facility.context.ee = true;
        assert!(facility.interrupt_is_due());
    }
}

// SPDX-License-Identifier: GPL-2.0

//! Delays of a pipeline: writes take effect late, and alerts occur late.
//!
//! A write of MMCR0 to MMCR3 or MMCRA takes effect with the next context synchronizing instruction,
//! or earlier.
//!
//! Those of problem state do so at once, as if the program synchronized them. One that does not may
//! count some instructions more or less itself, which no kernel sees: an interrupt synchronizes.
//!
//! \[memory\] Book III, "Synchronization Requirements for Context Alterations"; \[kernel\]
//! `power_pmu_disable()`, whose barriers are "to make sure the mtspr has been executed and the PMU
//! has frozen the events"; \[KVM\] `freeze_pmu()` with its `isync`, and `switch_pmu_to_guest()`: "No
//! isync necessary because we're starting counters".
//!
//! An alert occurs some instructions after the one at which a counter became negative
//! ([`Facility::have_alerts_come_late`]).

use crate::{
    Facility,
    fields::{mmcr0, spr},
};

/// The registers that this is about.
const LATE: [u32; 5] = [spr::MMCR0, spr::MMCR1, spr::MMCR2, spr::MMCR3, spr::MMCRA];

/// A write that has been executed, and has not taken effect yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Write {
    value: u64,
    /// It does so after as many instructions, if there is no synchronizing one before.
    left: u32,
}

/// Those writes, one for each register at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Writes {
    of: [Option<Write>; LATE.len()],
    any: bool,
}

impl Writes {
    /// What a read of the register finds: it follows the write in program order.
    pub(crate) fn value(&self, number: u32) -> Option<u64> {
        if !self.any {
            return None;
        }
        let at = LATE.iter().position(|late| *late == number)?;
        self.of[at].map(|write| write.value)
    }
}

impl Facility {
    /// `mtspr` in privileged state. Of these registers it takes effect at once, after one or two
    /// instructions, or with the next synchronizing one. A write waits for an earlier one of the
    /// same register.
    pub fn mtspr_late(&mut self, number: u32, value: u64) {
        let Some(at) = LATE.iter().position(|late| *late == number) else {
            return self.write_register(number, value);
        };
        self.take_effect(at);
        match self.chance.bits() >> 32 & 3 {
            0 => self.write_register(number, value),
            left => {
                let left = if left == 3 { u32::MAX } else { left as u32 };
                self.late.of[at] = Some(Write { value, left });
                self.late.any = true;
            }
        }
    }

    /// A context synchronizing instruction, or an interrupt: all writes have taken effect.
    pub fn synchronize(&mut self) {
        if self.late.any {
            (0..LATE.len()).for_each(|at| self.take_effect(at));
            self.late.any = false;
        }
    }

    /// An instruction has completed since the writes.
    pub(crate) fn pass_late_writes(&mut self) {
        if !self.late.any {
            return;
        }
        for at in 0..LATE.len() {
            if let Some(write) = &mut self.late.of[at] {
                write.left -= 1;
                if write.left == 0 {
                    self.take_effect(at);
                }
            }
        }
    }

    /// Makes some alerts occur up to three instructions after their condition came to exist.
    /// Counters go on until then, and SIAR has the last of these instructions. Alerts under
    /// MMCR0\[EBE\] stay prompt, as the registers of a program are compared with those of another
    /// facility. An alert that has not occurred when PMAE is cleared does not occur any more.
    ///
    /// \[microwatt\] `pmu_1`, one clock late; that others are later: \[memory\].
    pub fn have_alerts_come_late(&mut self) {
        self.alerts_come_late = true;
    }

    /// Whether an alert is to occur that has not yet.
    pub fn has_late_alert(&self) -> bool {
        self.late_alert.is_some()
    }

    /// Decides whether the alert of a condition that exists occurs later. Returns true if it does.
    pub(crate) fn delay_alert(&mut self) -> bool {
        let may = self.mmcr0 & (mmcr0::PMAE | mmcr0::EBE | mmcr0::TRIGGER) == mmcr0::PMAE;
        if !(self.alerts_come_late && may) {
            return false;
        }
        if self.late_alert.is_none() {
            let left = self.chance.bits() >> 32 & 3;
            self.late_alert = (left > 0).then_some(left as u32);
        }
        self.late_alert.is_some()
    }

    /// Counts an instruction that completed since a condition came to exist. Its alert may occur
    /// now.
    pub(crate) fn pass_late_alert(&mut self) {
        match self.late_alert {
            None => {}
            Some(1) => {
                self.late_alert = None;
                self.condition_or_event();
            }
            Some(left) => self.late_alert = Some(left - 1),
        }
    }

    fn take_effect(&mut self, at: usize) {
        if let Some(write) = self.late.of[at].take() {
            self.write_register(LATE[at], write.value);
        }
    }

    /// What a register holds that writes which have not taken effect leave as it is.
    pub fn in_effect(&self, number: u32) -> u64 {
        match number {
            spr::MMCR0 => self.mmcr0,
            spr::MMCR1 => self.mmcr1,
            spr::MMCR2 => self.mmcr2,
            spr::MMCR3 => self.mmcr3,
            spr::MMCRA => self.mmcra,
            _ => self.mfspr(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Facility, Instruction, Processor, mmcr0, spr};

    /// How many cycles PMC6 counts until a write freezes it, in many tries.
    fn counted_before_freeze(synchronizes: bool) -> Vec<u64> {
        let mut facility = Facility::new(Processor::Power9);
        let counted = (0..100).map(|_| {
            facility.mtspr(spr::PMC6, 0);
            facility.mtspr(spr::MMCR0, mmcr0::CC56RUN);
            facility.mtspr_late(spr::MMCR0, mmcr0::FC);
            assert_eq!(facility.mfspr(spr::MMCR0), mmcr0::FC);
            if synchronizes {
                facility.synchronize();
            }
            for _ in 0..5 {
                facility.execute(&Instruction::at(0x1000));
            }
            facility.mfspr(spr::PMC6)
        });
        let mut counted: Vec<_> = counted.collect();
        counted.sort();
        counted.dedup();
        counted
    }

    #[test]
    fn a_write_takes_effect_at_the_latest_when_synchronized() {
        assert_eq!(counted_before_freeze(false), [0, 1, 2, 5]);
        assert_eq!(counted_before_freeze(true), [0]);
    }

    #[test]
    fn an_alert_comes_some_instructions_late() {
        let counted = |mmcr0| {
            let mut facility = Facility::new(Processor::Power9);
            facility.have_alerts_come_late();
            let mut counted: Vec<_> = (0..100)
                .map(|_| {
                    facility.mtspr(spr::MMCR0, mmcr0::FC);
                    facility.mtspr(spr::PMC6, 0x7fff_ffff);
                    facility.mtspr(spr::MMCR0, mmcr0);
                    for at in 0..8 {
                        facility.execute(&Instruction::at(0x1000 + 4 * at));
                    }
                    assert!(!facility.has_late_alert());
                    assert_ne!(facility.mfspr(spr::MMCR0) & mmcr0::PMAO, 0);
                    let late = facility.mfspr(spr::PMC6) - 0x8000_0000;
                    assert_eq!(facility.mfspr(spr::SIAR), 0x1000 + 4 * late);
                    late
                })
                .collect();
            counted.sort();
            counted.dedup();
            counted
        };
        let mmcr0 = mmcr0::PMAE | mmcr0::FCECE | mmcr0::PMCJCE | mmcr0::CC56RUN;
        assert_eq!(counted(mmcr0), [0, 1, 2, 3]);
        assert_eq!(counted(mmcr0 | mmcr0::EBE), [0]);
    }
}

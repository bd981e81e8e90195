// SPDX-License-Identifier: GPL-2.0

//! Delays of a pipeline: writes take effect late, and alerts occur late.
//!
//! A privileged write to MMCR0 to MMCR3 or MMCRA takes effect at the next context synchronizing
//! instruction, or earlier.
//!
//! In the model, writes of problem state take effect at once, as if the program synchronized them.
//! A program that does not synchronize may itself count some instructions more or less, but the
//! kernel never sees that, because an interrupt synchronizes.
//!
//! \[memory\] Book III, "Synchronization Requirements for Context Alterations"; \[kernel\]
//! `power_pmu_disable()`, whose barriers are "to make sure the mtspr has been executed and the PMU
//! has frozen the events"; \[KVM\] `freeze_pmu()` with its `isync`, and `switch_pmu_to_guest()`:
//! "No isync necessary because we're starting counters".
//!
//! An alert may occur some instructions after the one that made a counter negative
//! ([`Facility::allow_delayed_alerts`]).

use crate::{
    Facility,
    fields::{mmcr0, spr},
};

/// The registers whose writes take effect late.
const DELAYED: [u32; 5] = [spr::MMCR0, spr::MMCR1, spr::MMCR2, spr::MMCR3, spr::MMCRA];

/// A write that was executed but has not taken effect yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Write {
    value: u64,
    /// Number of instructions after which the write takes effect, unless a synchronizing instruction
    /// comes first.
    remaining: u32,
}

/// The writes that have not taken effect yet, at most one for each register.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DelayedWrites {
    of: [Option<Write>; DELAYED.len()],
    any: bool,
}

impl DelayedWrites {
    /// Returns the value that a read of the register finds, which follows the write in program
    /// order.
    pub(crate) fn value(&self, number: u32) -> Option<u64> {
        if !self.any {
            return None;
        }
        let at = DELAYED.iter().position(|delayed| *delayed == number)?;
        self.of[at].map(|write| write.value)
    }
}

impl Facility {
    /// Executes `mtspr` in privileged state. A write to a register in `DELAYED` takes effect at
    /// once, after one or two instructions, or at the next synchronizing one. An earlier write to
    /// the same register takes effect first.
    pub fn mtspr_delayed(&mut self, number: u32, value: u64) {
        let Some(at) = DELAYED.iter().position(|delayed| *delayed == number) else {
            return self.write_register(number, value);
        };
        self.take_effect(at);
        match self.random.bits() >> 32 & 3 {
            0 => self.write_register(number, value),
            remaining => {
                let remaining = if remaining == 3 {
                    u32::MAX
                } else {
                    remaining as u32
                };
                self.delayed_writes.of[at] = Some(Write { value, remaining });
                self.delayed_writes.any = true;
            }
        }
    }

    /// Executes a context synchronizing instruction, or takes an interrupt: all writes take effect.
    pub fn synchronize(&mut self) {
        if self.delayed_writes.any {
            (0..DELAYED.len()).for_each(|at| self.take_effect(at));
            self.delayed_writes.any = false;
        }
    }

    /// Counts an instruction that has completed since the writes. Writes whose delay is over take
    /// effect.
    pub(crate) fn count_down_writes(&mut self) {
        if !self.delayed_writes.any {
            return;
        }
        for at in 0..DELAYED.len() {
            if let Some(write) = &mut self.delayed_writes.of[at] {
                write.remaining -= 1;
                if write.remaining == 0 {
                    self.take_effect(at);
                }
            }
        }
    }

    /// Makes some alerts occur up to three instructions after their condition came to exist.
    /// Counters continue until then, and SIAR has the last of these instructions. Alerts under
    /// MMCR0\[EBE\] remain prompt, because the tests compare a program's registers with those of
    /// another facility. An alert that has not occurred when PMAE is cleared never occurs.
    ///
    /// \[microwatt\] `pmu_1`, where an alert is one clock late; other processors may be later:
    /// \[memory\].
    pub fn allow_delayed_alerts(&mut self) {
        self.may_delay_alerts = true;
    }

    /// Returns whether an alert is due that has not occurred yet.
    pub fn has_delayed_alert(&self) -> bool {
        self.delayed_alert.is_some()
    }

    /// Decides whether the alert of an existing condition occurs later. Returns true if it does.
    pub(crate) fn delay_alert(&mut self) -> bool {
        let may = self.mmcr0 & (mmcr0::PMAE | mmcr0::EBE | mmcr0::TRIGGER) == mmcr0::PMAE;
        if !(self.may_delay_alerts && may) {
            return false;
        }
        if self.delayed_alert.is_none() {
            let remaining = self.random.bits() >> 32 & 3;
            self.delayed_alert = (remaining > 0).then_some(remaining as u32);
        }
        self.delayed_alert.is_some()
    }

    /// Counts an instruction that completed since a condition came to exist, after which its alert
    /// may occur.
    pub(crate) fn count_down_alert(&mut self) {
        match self.delayed_alert {
            None => {}
            Some(1) => {
                self.delayed_alert = None;
                self.condition_or_event();
            }
            Some(remaining) => self.delayed_alert = Some(remaining - 1),
        }
    }

    fn take_effect(&mut self, at: usize) {
        if let Some(write) = self.delayed_writes.of[at].take() {
            self.write_register(DELAYED[at], write.value);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Facility, Instruction, Processor, mmcr0, spr};

    /// Returns the different counts that PMC6 reaches in 100 tries before a write freezes it.
    fn counted_before_freeze(synchronizes: bool) -> Vec<u64> {
        let mut facility = Facility::new(Processor::Power9);
        let counted = (0..100).map(|_| {
            facility.mtspr(spr::PMC6, 0);
            facility.mtspr(spr::MMCR0, mmcr0::CC56RUN);
            facility.mtspr_delayed(spr::MMCR0, mmcr0::FC);
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
            facility.allow_delayed_alerts();
            let mut counted: Vec<_> = (0..100)
                .map(|_| {
                    facility.mtspr(spr::MMCR0, mmcr0::FC);
                    facility.mtspr(spr::PMC6, 0x7fff_ffff);
                    facility.mtspr(spr::MMCR0, mmcr0);
                    for at in 0..8 {
                        facility.execute(&Instruction::at(0x1000 + 4 * at));
                    }
                    assert!(!facility.has_delayed_alert());
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

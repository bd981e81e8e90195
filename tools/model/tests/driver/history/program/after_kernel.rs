// SPDX-License-Identifier: GPL-2.0

//! Changes that a program with an EBB group may find when the kernel returns to it: what a group
//! that counts the kernel has counted there, and the driver's limitations.

use super::{Counter, EBB, Program, in_kernel, user};
use crate::{
    history::world::REAL_MODE,
    machine::{KERNEL_DATA, KERNEL_TEXT, was_probed},
};
use pmu_model::{Facility, Processor, bescr, identifying_bits, mmcr0, mmcra, sier, spr};

/// Bits of SIER that indicate which registers are valid.
const VALID: u64 = sier::SIARV | sier::SDARV;

impl Program {
    /// Returns whether a switch may delay the program's alert: on POWER8E it does if the program is
    /// switched while BESCR\[GE\] is off (`Documentation/internals.md`, Limitations).
    pub(super) fn is_delayed(&mut self) -> bool {
        let mmcr0 = self.own.mfspr(spr::MMCR0);
        let is_off = self.own.mfspr(spr::BESCR) & bescr::GE == 0;
        self.is_delayed = self.own.processor() == Processor::Power8E
            && mmcr0 & mmcr0::PMAO != 0
            && (self.is_delayed || is_off);
        self.is_delayed
    }

    /// Checks all registers, except for the moment of an alert that is delayed: see
    /// [`Program::is_delayed`].
    pub(super) fn check_delayed(&self, facility: &Facility) {
        for number in [spr::MMCR0, spr::MMCR1, spr::MMCR2, spr::EBBHR] {
            self.check_register(facility, number, 0);
        }
        for counter in &self.counters {
            let more = self.more_in_kernel(counter);
            self.check_register(facility, spr::PMC1 + counter.pmc as u32, more);
        }
        if !self.counters.iter().any(|counter| counter.includes_kernel) {
            self.check_sample(facility);
        }
    }

    fn check_register(&self, facility: &Facility, number: u32, more: u64) {
        let (found, own) = (facility.mfspr(number), self.own.mfspr(number));
        assert_eq!(found, own + more, "SPR {number} after the kernel's work");
    }

    /// Returns how much a counter has counted in the kernel since the last comparison.
    pub(super) fn more_in_kernel(&self, counter: &Counter) -> u64 {
        in_kernel(counter.id) - counter.in_kernel
    }

    /// Checks the registers of a group that counts the kernel, which the kernel's work may have
    /// changed.
    pub(super) fn check_after_kernel(&self, task: usize, facility: &Facility, nip: u64) {
        let [found, own] = [facility, &self.own].map(|of| move |number| of.mfspr(number));
        let before = own(spr::MMCR0);
        let after = found(spr::MMCR0);
        let mut overflows = false;
        for counter in &self.counters {
            let number = spr::PMC1 + counter.pmc as u32;
            self.check_register(facility, number, self.more_in_kernel(counter));
            overflows |= facility.is_negative(number) && !self.own.is_negative(number);
        }
        let is_alert = overflows && before & mmcr0::PMAE != 0;
        let expected = if overflows {
            after_overflow(before)
        } else {
            before
        };
        assert_eq!(
            after, expected,
            "MMCR0 after the kernel's work; {before:#x} before"
        );
        for number in [spr::MMCR1, spr::MMCR2, spr::MMCR3, spr::EBBHR] {
            self.check_register(facility, number, 0);
        }
        if is_alert {
            let siar = found(spr::SIAR);
            let is_probed = was_probed(siar, task);
            assert!(
                is_probed || siar & !0xfff == KERNEL_TEXT,
                "SIAR after the kernel's work: {siar:#x}"
            );
            let bits = found(spr::SIER) & sier::USER & !VALID;
            let is_right = if is_probed {
                // The kernel stepped over a probe after the alert.
                (identifying_bits(KERNEL_TEXT)..=identifying_bits(KERNEL_TEXT | 0xffc))
                    .contains(&bits)
            } else {
                bits == identifying_bits(siar)
            };
            assert!(is_right, "SIER after the kernel's work: {bits:#x}");
            let others = [spr::SIER2, spr::SIER3].into_iter();
            for number in others.filter(|number| facility.has_spr(*number)) {
                assert_eq!(found(number), bits, "SPR {number} after the kernel's work");
            }
        } else {
            self.check_sample(facility);
        }
        let sdar = found(spr::SDAR);
        if is_alert && facility.is_known(spr::SDAR) && !was_probed(sdar, task) {
            assert_eq!(sdar, KERNEL_DATA, "SDAR after the kernel's work");
        }
        self.check_branches(facility, |entry| {
            entry >> 63 != 0 || entry & !3 == REAL_MODE
        });
        let mut branched = self.own.clone();
        if is_alert {
            alert(&mut branched);
        }
        assert_eq!(
            nip,
            branched.enter_problem_state(self.nip),
            "where the program goes on after the kernel's work"
        );
        for number in EBB {
            let expected = branched.mfspr(number);
            assert_eq!(
                found(number),
                expected,
                "SPR {number} after the kernel's work"
            );
        }
    }

    /// Copies the threshold counter if a switch has changed it, because no code saves it. It may be
    /// 0, the value that the program left on this CPU before, or, while the PMU marks instructions,
    /// that of a kernel instruction.
    pub(super) fn lose_threshold(&mut self, facility: &Facility) {
        let number = user(spr::MMCRA);
        let found = facility.problem_mfspr(number);
        let own = self.own.problem_mfspr(number);
        let is_marking = facility.mfspr(spr::MMCRA) & mmcra::SAMPLE_ENABLE != 0;
        assert!(
            found == own
                || found == Ok(0)
                || is_marking
                || self.left.get(&(self.cpu, spr::MMCRA)).copied() == found.ok(),
            "the threshold counter is not the program's: {found:x?}, its own {own:x?}"
        );
        let lost = self.own.problem_mtspr(number, found.unwrap_or(0));
        assert_eq!(lost, Ok(()), "MMCRA of a program with a group");
    }

    /// Sets counters without an event to 0 if a switch has done so, or to the value that the
    /// program left on this CPU before. PMC5 and PMC6 count even if only the other one has an
    /// event, in the kernel too if the group counts that: they have counted `in_kernel` there.
    pub(super) fn lose_counters(&mut self, facility: &Facility, in_kernel: [u64; 2]) {
        let counted_kernel = self.counted_kernel.remove(&self.cpu);
        let counts_kernel =
            counted_kernel || self.counters.iter().any(|counter| counter.includes_kernel);
        for number in 0..6 {
            if self.has_counter(number) {
                continue;
            }
            let more = match number {
                4.. if counts_kernel => in_kernel[number - 4],
                _ => 0,
            };
            let number = user(spr::PMC1) + number as u32;
            let found = facility.problem_mfspr(number);
            let own = self.own.problem_mfspr(number);
            let left = self.left.get(&(self.cpu, number + spr::PROBLEM));
            assert!(
                found == own.map(|own| own + more)
                    || found.is_ok_and(|found| found <= more)
                    || left.is_some_and(|left| found == Ok(left + more)),
                "SPR {number} is not the program's: {found:x?}, its own {own:x?}"
            );
            if found != own {
                let lost = self.own.problem_mtspr(number, found.unwrap_or(0));
                assert_eq!(lost, Ok(()), "SPR {number} of a program with a group");
            }
        }
    }
}

/// Returns MMCR0 after a counter has overflowed in the kernel.
fn after_overflow(before: u64) -> u64 {
    if before & mmcr0::PMAE == 0 {
        before | mmcr0::FC
    } else {
        before & !mmcr0::PMAE | mmcr0::FC | mmcr0::PMAO
    }
}

/// Lets a counter overflow in the kernel.
pub(super) fn alert(own: &mut Facility) {
    let before = own.mfspr(spr::MMCR0);
    own.mtspr(spr::MMCR0, after_overflow(before));
    // On POWER8E no write of MMCR0 does this.
    let bescr = own.mfspr(spr::BESCR);
    if before & mmcr0::PMAE != 0 && bescr & bescr::PME != 0 {
        own.mtspr(spr::BESCR, bescr & !bescr::PME | bescr::PMEO);
    }
}

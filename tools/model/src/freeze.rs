// SPDX-License-Identifier: GPL-2.0

//! The states in which each counter counts. Counters are numbered from 0, for PMC1.

use crate::{
    Context, Facility, Fault,
    fields::{mmcr0, mmcr2},
};

/// The first counter that is not programmable: PMC5.
const PMC5: usize = 4;

impl Facility {
    /// Returns whether a counter counts in the thread's present state.
    pub fn counts(&self, pmc: usize) -> bool {
        if self.is_outside(pmc) {
            return self.context.run;
        }
        let waits_for_trigger = pmc > 0 && self.mmcr0 & mmcr0::TRIGGER != 0;
        !(self.is_frozen(self.context)
            || self.is_half_frozen(pmc)
            || self.is_frozen_by_mmcr2(pmc)
            || waits_for_trigger)
    }

    /// Returns whether a counter is not part of the facility: PMC5 and PMC6 with PMCC 0b11. No
    /// field of an MMCR freezes them then, and they cause no alerts; they count run instructions
    /// and run cycles.
    ///
    /// \[microwatt\] `pmu_2`, after ISA v3.0B, MMCR0\[PMCC\].
    pub(crate) fn is_outside(&self, pmc: usize) -> bool {
        pmc >= PMC5 && mmcr0::pmcc(self.mmcr0) == 0b11
    }

    /// Returns whether FC, FCS, FCP (with FCPC), FCM1, FCM0 or FCH freezes all counters.
    ///
    /// \[microwatt\] `pmu_2`. FCS does not freeze in hypervisor state, FCH does: \[kernel\]
    /// `freeze_events_kernel` in `core-book3s.c`.
    pub(crate) fn is_frozen(&self, context: Context) -> bool {
        let set = |field| self.mmcr0 & field != 0;
        (set(mmcr0::FC) && !(Fault::Frozen.is_on() && context.problem))
            || self.is_frozen_in(context)
            || (set(mmcr0::FCM1) && context.pmm)
            || (set(mmcr0::FCM0) && !context.pmm)
    }

    /// Returns whether FCS, FCP (with FCPC) or FCH freezes all counters and the BHRB.
    ///
    /// FCP alone freezes both problem states. With FCPC set, FCP selects one: that of a partition
    /// (MSR\[HV PR\] = 0b01) if it is 0, that with MSR\[HV\]=1 (0b11) if it is 1. \[memory\] Book
    /// III, MMCR0\[FCP\]; \[QEMU\] where it records branches. \[microwatt\], which has no
    /// partitions, treats FCPC as the inverse of FCP.
    pub(crate) fn is_frozen_in(&self, context: Context) -> bool {
        let set = |field| self.mmcr0 & field != 0;
        let frozen_in_programs = if set(mmcr0::FCPC) {
            context.hypervisor == set(mmcr0::FCP)
        } else {
            set(mmcr0::FCP)
        };
        (set(mmcr0::FCS) && context.is_supervisor())
            || (context.problem && frozen_in_programs)
            || (set(mmcr0::FCH) && context.is_hypervisor())
    }

    /// Returns whether FC1-4, FC1-4WAIT or FC5-6 freezes a counter, or the run latch: while it is
    /// off PMC5 and PMC6 count only with CC56RUN.
    ///
    /// \[microwatt\] `pmu_2`. (There PMC1 counts cycles, code f0, in spite of FC1-4WAIT.)
    fn is_half_frozen(&self, pmc: usize) -> bool {
        let set = |field| self.mmcr0 & field != 0;
        let wait = !self.context.run;
        if pmc < PMC5 {
            let cycles = pmc == 0 && self.pmc_select(0) == 0xf0;
            set(mmcr0::FC14) || (set(mmcr0::FC14WAIT) && wait && !cycles)
        } else {
            set(mmcr0::FC56) || (wait && !set(mmcr0::CC56RUN))
        }
    }

    /// Returns whether MMCR2, which has nine bits for each counter, freezes a counter.
    ///
    /// \[ISA\] v3.1, Book III, 10.4.6 for FCnP0, as \[QEMU\] quotes it; \[kernel\]
    /// `isa207-common.h` for FCnS, FCnP, FCnH, FCnWAIT; \[microwatt\] for FCnM1, FCnM0 (where both
    /// test FCnM1, by mistake); \[memory\] FCnP1.
    fn is_frozen_by_mmcr2(&self, pmc: usize) -> bool {
        let conditions = self.mmcr2 << (9 * pmc);
        let set = |field| conditions & field != 0;
        let context = self.context;
        (set(mmcr2::FCS) && context.is_supervisor())
            || (set(mmcr2::FCP0) && context.problem && !context.hypervisor)
                && !Fault::FrozenOne.is_on()
            || (set(mmcr2::FCP1) && context.problem && context.hypervisor)
            || (set(mmcr2::FCM1) && context.pmm)
            || (set(mmcr2::FCM0) && !context.pmm)
            || (set(mmcr2::FCWAIT) && !context.run)
            || (set(mmcr2::FCH) && context.is_hypervisor())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Context, Facility, Processor, mmcr0, mmcr2, spr};

    const ALL: [bool; 6] = [true; 6];
    const NONE: [bool; 6] = [false; 6];
    const PROGRAM_HV: Context = Context {
        hypervisor: true,
        ..Context::PROGRAM
    };
    const MARKED: Context = Context {
        pmm: true,
        ..Context::PROGRAM
    };
    const WAITING: Context = Context {
        run: false,
        ..Context::KERNEL
    };

    /// Returns which counters count.
    fn counting(mmcr0: u64, mmcr2: u64, context: Context) -> [bool; 6] {
        let mut facility = Facility::new(Processor::Power9);
        facility.mtspr(spr::MMCR0, mmcr0);
        facility.mtspr(spr::MMCR2, mmcr2);
        facility.context = context;
        core::array::from_fn(|pmc| facility.counts(pmc))
    }

    #[test]
    fn fields_of_mmcr0_freeze_all_counters_in_their_states() {
        let (program, kernel, hv) = (Context::PROGRAM, Context::KERNEL, Context::HYPERVISOR);
        for (field, frozen) in [
            (mmcr0::FC, [true, true, true, true]),
            (mmcr0::FCS, [false, true, false, false]),
            (mmcr0::FCP, [true, false, false, true]),
            (mmcr0::FCPC, [true, false, false, false]),
            (mmcr0::FCP | mmcr0::FCPC, [false, false, false, true]),
            (mmcr0::FCH, [false, false, true, false]),
            (mmcr0::FCM0, [true; 4]),
            (mmcr0::FCM1, [false; 4]),
        ] {
            for (context, frozen) in [program, kernel, hv, PROGRAM_HV].into_iter().zip(frozen) {
                let expected = if frozen { NONE } else { ALL };
                assert_eq!(
                    counting(field, 0, context),
                    expected,
                    "{field:#x} {context:?}"
                );
            }
        }
        assert_eq!(counting(mmcr0::FCM0, 0, MARKED), ALL);
        assert_eq!(counting(mmcr0::FCM1, 0, MARKED), NONE);
    }

    #[test]
    fn cycles_on_pmc1_go_on_in_spite_of_fc14wait() {
        let mut facility = Facility::new(Processor::Power9);
        facility.mtspr(spr::MMCR1, 0xf0f0_f0f0);
        facility.mtspr(spr::MMCR0, mmcr0::FC14WAIT);
        facility.context = WAITING;
        assert!(facility.counts(0) && !facility.counts(1));
        facility.mtspr(spr::MMCR1, 0xfef0_f0f0);
        assert!(!facility.counts(0));
    }

    #[test]
    fn mmcr2_freezes_each_counter_by_itself() {
        for pmc in 0..6 {
            for (field, context, other) in [
                (mmcr2::FCS, Context::KERNEL, Context::HYPERVISOR),
                (mmcr2::FCP0, Context::PROGRAM, PROGRAM_HV),
                (mmcr2::FCP1, PROGRAM_HV, Context::PROGRAM),
                (mmcr2::FCH, Context::HYPERVISOR, Context::KERNEL),
                (mmcr2::FCM1, MARKED, Context::PROGRAM),
                (mmcr2::FCM0, Context::PROGRAM, MARKED),
            ] {
                let mut expected = ALL;
                assert_eq!(counting(0, field >> (9 * pmc), other), expected);
                expected[pmc] = false;
                assert_eq!(counting(0, field >> (9 * pmc), context), expected);
            }
            let mut expected = ALL;
            expected[pmc] = false;
            let wait = mmcr2::FCWAIT >> (9 * pmc);
            assert_eq!(counting(mmcr0::CC56RUN, wait, WAITING), expected);
        }
        // Problem state may write FCnP0 of each counter, and nothing else.
        let all = (0..6).fold(0, |bits, pmc| bits | mmcr2::FCP0 >> (9 * pmc));
        assert_eq!(all, mmcr2::USER);
    }
}

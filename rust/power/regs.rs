// SPDX-License-Identifier: GPL-2.0

//! Registers whose fields the driver looks at. Each field names its IBM bit numbers (bit 0 is the
//! most significant of the register: MMCR0 counts from 32, the others from 0).
//!
//! Source: Power ISA 3.1B, Book III, chapter "Performance Monitor Facility" (MMCR0, MMCRA, SIER), and
//! Book II, chapter "Event-Based Branch Facility" (BESCR).

// The accessors that the macro makes for every field; not each has a use.
#![allow(dead_code, unreachable_pub)]

use super::spr;
use kernel::bitfield;

const BESCR: u32 = 806;
const EBBHR: u32 = 804;
const EBBRR: u32 = 805;
const MMCR0: u32 = 795;
const MMCR1: u32 = 798;
const MMCR2: u32 = 785;
const MMCR3: u32 = 754;
const MMCRA: u32 = 786;
const SDAR: u32 = 797;
const SIAR: u32 = 796;
const SIER: u32 = 784;
const SIER2: u32 = 752;
const SIER3: u32 = 753;

bitfield! {
    /// Monitor Mode Control Register 0.
    pub(crate) struct Mmcr0(u64) {
        /// FC (bit 32): no counter counts.
        31:31 frozen;
        /// PMAE (37): alerts are enabled; the hardware clears it with the alert.
        26:26 alert_enable;
        /// FCECE (38): the first enabled condition freezes the counters.
        25:25 freeze_on_alert;
        /// BHRBA (42): problem state may read the BHRB.
        21:21 bhrb_access;
        /// EBE (43): alerts cause event based branches rather than interrupts.
        20:20 ebb_enable;
        /// PMCC (44:45): what problem state may do with the PMCs; 0b10 is read and write PMC1-6.
        19:18 pmc_control;
        /// PMC1CE (48): PMC1 alerts when it becomes negative.
        15:15 first_alerts;
        /// PMCjCE (49): PMC2 to PMC6 alert when they become negative.
        14:14 others_alert;
        /// PMCCEXT (54, v3.1): with PMCC 0b00 problem state may not read them either.
        9:9 pmcc_extended;
        /// PMAO (56): an alert occurred.
        7:7 alert_occurred;
        /// FC14 (58): PMC1 to PMC4 do not count.
        5:5 freeze_14;
        /// FC56 (59): PMC5 and PMC6 do not count.
        4:4 freeze_56;
    }
}

bitfield! {
    /// Monitor Mode Control Register A, the part that does not belong to an event.
    pub(crate) struct Mmcra(u64) {
        /// BHRBRD (bit 26, v3.1): the BHRB records no branches.
        37:37 bhrb_recording_disable;
        /// SAMPLE_ENABLE (63): instructions are chosen and marked for sampling.
        0:0 sample_enable;
    }
}

bitfield! {
    /// Branch Event Status and Control Register.
    pub(crate) struct Bescr(u64) {
        /// GE (bit 0): event based branches are enabled.
        63:63 global_enable;
        /// PME (31): those of the PMU are enabled.
        32:32 pm_enable;
        /// PMEO (63): one of the PMU occurred.
        0:0 pm_occurred;
    }
}

bitfield! {
    /// Sampled Instruction Event Register, the part that the driver looks at.
    pub(crate) struct Sier(u64) {
        /// SIPR (bit 38): the instruction ran in problem state.
        25:25 problem_state;
        /// SIAR valid (41): SIAR holds the address of the sampled instruction.
        22:22 siar_valid;
        /// SDAR valid (42): SDAR holds the address of its data.
        21:21 sdar_valid;
    }
}

/// Read and write functions of a register type.
macro_rules! access {
    ($($register:ident: $number:expr),* $(,)?) => { $(
        impl $register {
            /// The register's value now.
            #[inline(always)]
            pub(crate) fn read() -> Self {
                Self::from(spr::read::<{ $number }>())
            }

            /// Sets the register.
            #[inline(always)]
            pub(crate) fn write(self) {
                spr::write::<{ $number }>(self.into())
            }
        }
    )* };
}

access!(Mmcr0: MMCR0, Mmcra: MMCRA, Bescr: BESCR, Sier: SIER);

/// PMCC: problem state may read and write PMC1 to PMC6.
const PMCC_USER_ALL: u64 = 0b10;

/// PMCC: problem state may not even read the PMU's registers.
const PMCC_USER_NONE: u64 = 0b01;

impl Mmcr0 {
    /// What a program may set by way of the problem state's view: FC, PMAE, PMAO.
    const USER: u64 = Self::FROZEN_MASK | Self::ALERT_ENABLE_MASK | Self::ALERT_OCCURRED_MASK;

    /// The value while counters are stopped and nobody but the kernel may touch them.
    pub(crate) fn stopped(self) -> Self {
        self.with_const_frozen::<1>()
            .with_const_ebb_enable::<0>()
            .with_const_bhrb_access::<0>()
            .with_const_pmc_control::<0>()
            .with_const_alert_occurred::<0>()
            .with_const_alert_enable::<0>()
            .with_const_freeze_56::<0>()
    }

    /// The value while nobody has events.
    pub(crate) fn closed(self) -> Self {
        self.with_const_pmc_control::<PMCC_USER_NONE>()
    }

    /// The value with alerts on, and counters stopping at the first one.
    pub(crate) fn alerting(self) -> Self {
        self.with_const_alert_enable::<1>()
            .with_const_freeze_on_alert::<1>()
    }

    /// The value for a program with EBBs whose own bits are `user`: its FC and PMAO are added, its
    /// PMAE holds.
    pub(crate) fn for_ebb(self, user: Mmcr0) -> Self {
        let granted = self
            .with_const_ebb_enable::<1>()
            .with_const_bhrb_access::<1>()
            .with_const_pmc_control::<PMCC_USER_ALL>()
            .with_const_alert_enable::<0>();
        Self::from(u64::from(granted) | u64::from(user.user()))
    }

    /// Whether a counter (0 for PMC1) that is negative has caused an alert, or is going to.
    pub(crate) fn alerts_by(self, index: usize) -> bool {
        let (alerts, frozen) = match index {
            0 => (self.first_alerts(), self.freeze_14()),
            1..=3 => (self.others_alert(), self.freeze_14()),
            _ => (self.others_alert(), self.freeze_56()),
        };
        self.alert_enable() == 1 && self.frozen() == 0 && alerts == 1 && frozen == 0
    }

    /// The value after an alert.
    pub(crate) fn alerted(self) -> Self {
        let frozen = self.frozen() == 1 || self.freeze_on_alert() == 1;
        self.with_const_alert_occurred::<1>()
            .with_const_alert_enable::<0>()
            .with_frozen(frozen)
    }

    /// The bits that belong to a program with EBBs.
    pub(crate) fn user(self) -> Self {
        Self::from(u64::from(self) & Self::USER)
    }
}

/// MMCR2: in bits 0 to 53 nine bits a counter, PMC1 first, the second of which (FCnP) freezes it in
/// problem state. Those are the program's to set.
pub(crate) const MMCR2_USER: u64 = 0x4020_1008_0402_0000;

/// A register without fields, or whose fields the event codes fill.
macro_rules! plain {
    ($($(#[$doc:meta])* $register:ident: $number:expr),* $(,)?) => { $(
        $(#[$doc])*
        pub(crate) struct $register;

        impl $register {
            /// The register's value now.
            #[inline(always)]
            pub(crate) fn read() -> u64 {
                spr::read::<{ $number }>()
            }

            /// Sets the register.
            #[inline(always)]
            pub(crate) fn write(value: u64) {
                spr::write::<{ $number }>(value)
            }
        }
    )* };
}

plain! {
    /// Event selection.
    Mmcr1: MMCR1,
    /// Freeze conditions of each counter.
    Mmcr2: MMCR2,
    /// More of event selection (v3.1).
    Mmcr3: MMCR3,
    /// Address of the sampled instruction.
    Siar: SIAR,
    /// Address of the sampled instruction's data.
    Sdar: SDAR,
    /// More of the sampled instruction's event (v3.1).
    Sier2: SIER2,
    /// More of the sampled instruction's event (v3.1).
    Sier3: SIER3,
    /// Address of the EBB handler.
    Ebbhr: EBBHR,
    /// Where the EBB handler returns to.
    Ebbrr: EBBRR,
}

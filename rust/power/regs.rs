// SPDX-License-Identifier: GPL-2.0

//! The PMU's registers, and the fields that the driver reads or writes.
//!
//! A field has the name that the Power ISA and the kernel's `asm/reg.h` give it, in lower case. Its
//! doc has the name as written there and the IBM bit number, where bit 0 is the most significant of
//! 64. `bitfield!` counts bits from the least significant one.
//!
//! | field   | stands for |
//! |---------|------------|
//! | BHRBA   | BHRB Available: problem state may use the BHRB's instructions |
//! | BHRBRD  | BHRB Recording Disable |
//! | EBE     | Performance Monitor Event-Based Branch Enable |
//! | FC      | Freeze Counters; FC1-4, FC5-6: of these PMCs; FCnP: PMCn in problem state |
//! | FCECE   | Freeze Counters on Enabled Condition or Event |
//! | GE      | Global Enable |
//! | PMAE    | Performance Monitor Alert Enable (`MMCR0_PMXE` in `asm/reg.h`) |
//! | PMAO    | Performance Monitor Alert Occurred |
//! | PMC1CE  | PMC1 Condition Enable; PMCjCE: of PMC2 to PMC6 |
//! | PMCC    | PMC Control; PMCCEXT: PMC Control Extension |
//! | PME     | Performance Monitor Event-Based Exception Enable |
//! | PMEO    | Performance Monitor Event-Based Exception Occurred |
//! | SIPR    | Sampled MSR\[PR\] |
//!
//! Source: Power ISA 3.1B, Book III, chapter "Performance Monitor Facility" (MMCR0, MMCRA, SIER),
//! and Book II, chapter "Event-Based Branch Facility" (BESCR).

// `bitfield!` makes functions for each field, and some of them are not used.
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
        31:31 fc;
        /// PMAE (37): alerts are enabled. The hardware clears it when an alert occurs.
        26:26 pmae;
        /// FCECE (38): the first enabled condition sets FC.
        25:25 fcece;
        /// BHRBA (42): problem state may read and clear the BHRB.
        21:21 bhrba;
        /// EBE (43): an alert causes an event-based branch instead of an interrupt.
        20:20 ebe;
        /// PMCC (44:45): the access of problem state to the PMU's registers.
        19:18 pmcc;
        /// PMC1CE (48): PMC1 raises an alert when it becomes negative.
        15:15 pmc1ce;
        /// PMCjCE (49): PMC2 to PMC6 raise an alert when they become negative.
        14:14 pmcjce;
        /// PMCCEXT (54, v3.1): with PMCC 0b00 problem state may not read MMCR1, MMCR3, SIAR, SDAR
        /// and SIER. It could still read the other registers, so the driver also sets PMCC to 0b01.
        9:9 pmccext;
        /// PMAO (56): an alert occurred.
        7:7 pmao;
        /// FC1-4 (58): PMC1 to PMC4 do not count.
        5:5 fc14;
        /// FC5-6 (59): PMC5 and PMC6 do not count.
        4:4 fc56;
    }
}

bitfield! {
    /// Monitor Mode Control Register A, the fields that belong to no event.
    pub(crate) struct Mmcra(u64) {
        /// BHRBRD (bit 26, v3.1): the BHRB records no branches.
        37:37 bhrbrd;
        /// SDAR_MODE (20:21): when hardware sets SDAR while it does not mark instructions; 0 for
        /// never.
        43:42 sdar_mode;
        /// SAMPLE_ENABLE (63): the PMU marks instructions and samples only marked ones.
        0:0 sample_enable;
    }
}

bitfield! {
    /// Branch Event Status and Control Register.
    pub(crate) struct Bescr(u64) {
        /// GE (bit 0): event-based branches are enabled.
        63:63 ge;
        /// PME (31): event-based branches of the PMU are enabled.
        32:32 pme;
        /// PMEO (63): the PMU's event-based exception occurred.
        0:0 pmeo;
    }
}

bitfield! {
    /// Sampled Instruction Event Register: the fields that are the same on all processors.
    pub(crate) struct Sier(u64) {
        /// SIPR (bit 38): MSR\[PR\] of the sampled instruction; 1 if it ran in problem state.
        25:25 sipr;
        /// SIAR_VALID (41): SIAR holds the address of the sampled instruction.
        22:22 siar_valid;
        /// SDAR_VALID (42): SDAR holds the address of the sampled instruction's data.
        21:21 sdar_valid;
    }
}

/// A register of the PMU, as a type.
pub(crate) trait Register {
    /// Reads the register.
    fn read_value() -> u64;

    /// Writes the register.
    fn write_value(value: u64);
}

/// Makes functions to read and write a register with fields.
macro_rules! access {
    ($($register:ident: $number:expr),* $(,)?) => { $(
        impl $register {
            /// Reads the register.
            #[inline]
            pub(crate) fn read() -> Self {
                Self::from(spr::read::<{ $number }>())
            }

            /// Writes the register.
            #[inline]
            pub(crate) fn write(self) {
                spr::write::<{ $number }>(self.into())
            }
        }

        impl Register for $register {
            #[inline]
            fn read_value() -> u64 {
                spr::read::<{ $number }>()
            }

            #[inline]
            fn write_value(value: u64) {
                spr::write::<{ $number }>(value)
            }
        }
    )* };
}

access!(Mmcr0: MMCR0, Mmcra: MMCRA, Bescr: BESCR, Sier: SIER);

/// PMCC: problem state may read and write PMC1 to PMC6.
const PMCC_PMC1_6: u64 = 0b10;

/// PMCC: problem state may neither read nor write the PMU's registers. A program that tries gets
/// SIGILL, because of a facility unavailable interrupt.
const PMCC_NONE: u64 = 0b01;

impl Mmcr0 {
    /// The bits that problem state may write: FC, PMAE, PMAO.
    const USER: u64 = Self::FC_MASK | Self::PMAE_MASK | Self::PMAO_MASK;

    /// Returns the value with the counters frozen, and without alerts, EBBs or access for problem
    /// state.
    pub(crate) fn frozen(self) -> Self {
        self.with_const_fc::<1>()
            .with_const_ebe::<0>()
            .with_const_bhrba::<0>()
            .with_const_pmcc::<PMCC_NONE>()
            .with_const_pmao::<0>()
            .with_const_pmae::<0>()
            .with_const_fc56::<0>()
    }

    /// Returns whether problem state has no access (PMCC 0b01).
    pub(crate) fn is_closed(self) -> bool {
        self.pmcc() == PMCC_NONE
    }

    /// Returns the value with PMCC 0b00, as after boot, if problem state has no access now. With
    /// PMCC 0b00, problem state may read registers before v3.1.
    pub(crate) fn with_default_access(self) -> Self {
        if self.is_closed() {
            self.with_const_pmcc::<0>()
        } else {
            self
        }
    }

    /// Returns the value with alerts enabled, the first of which freezes the counters, and without
    /// access for problem state.
    pub(crate) fn alerting(self) -> Self {
        self.with_const_pmae::<1>()
            .with_const_fcece::<1>()
            .with_const_pmcc::<PMCC_NONE>()
    }

    /// Returns the value with EBBs and with access for a program, also to the BHRB if there is one.
    /// PMAE must come from the program.
    pub(crate) fn for_ebb(self, bhrb: bool) -> Self {
        self.with_const_ebe::<1>()
            .with_bhrba(bhrb)
            .with_const_pmcc::<PMCC_PMC1_6>()
            .with_const_pmae::<0>()
    }

    /// Returns the value with the bits of a program added: FC is set if either value has it.
    pub(crate) fn with_program(self, user: Mmcr0) -> Self {
        Self::from(u64::from(self) | u64::from(user))
    }

    /// Returns whether a counter (0 for PMC1) raises an alert when it becomes negative.
    pub(crate) fn raises_alert(self, index: usize) -> bool {
        let (enabled, frozen) = match index {
            0 => (self.pmc1ce(), self.fc14()),
            1..=3 => (self.pmcjce(), self.fc14()),
            _ => (self.pmcjce(), self.fc56()),
        };
        self.pmae() == 1 && self.fc() == 0 && enabled == 1 && frozen == 0
    }

    /// Returns the value of MMCR0 after an alert occurred.
    pub(crate) fn after_alert(self) -> Self {
        let fc = self.fc() == 1 || self.fcece() == 1;
        self.with_const_pmao::<1>()
            .with_const_pmae::<0>()
            .with_fc(fc)
    }

    /// Returns only the bits that a program with EBBs may write.
    pub(crate) fn user(self) -> Self {
        Self::from(u64::from(self) & Self::USER)
    }
}

/// The bits of MMCR2 that freeze counters in all states: IBM bits 0 to 53, nine for each counter,
/// PMC1 first.
pub(super) const MMCR2_FREEZE: u64 = !0 << 10;

/// The bits of MMCR2 that problem state may write: FC1P to FC6P, the second of each nine.
pub(crate) const MMCR2_USER: u64 = 0x4020_1008_0402_0000;

/// Makes a register without fields here: it has none, or `isa207` makes its image.
macro_rules! plain {
    ($($(#[$doc:meta])* $register:ident: $number:expr),* $(,)?) => { $(
        $(#[$doc])*
        pub(crate) struct $register;

        impl $register {
            /// Reads the register.
            #[inline]
            pub(crate) fn read() -> u64 {
                spr::read::<{ $number }>()
            }

            /// Writes the register.
            #[inline]
            pub(crate) fn write(value: u64) {
                spr::write::<{ $number }>(value)
            }
        }

        impl Register for $register {
            #[inline]
            fn read_value() -> u64 {
                Self::read()
            }

            #[inline]
            fn write_value(value: u64) {
                Self::write(value)
            }
        }
    )* };
}

plain! {
    /// Monitor Mode Control Register 1: event selection.
    Mmcr1: MMCR1,
    /// Monitor Mode Control Register 2: freeze conditions of each counter.
    Mmcr2: MMCR2,
    /// Monitor Mode Control Register 3 (v3.1): further event selection.
    Mmcr3: MMCR3,
    /// Sampled Instruction Address Register.
    Siar: SIAR,
    /// Sampled Data Address Register.
    Sdar: SDAR,
    /// Sampled Instruction Event Register 2 (v3.1).
    Sier2: SIER2,
    /// Sampled Instruction Event Register 3 (v3.1).
    Sier3: SIER3,
    /// Event-Based Branch Handler Register: the address of the handler.
    Ebbhr: EBBHR,
    /// Event-Based Branch Return Register: the address to which the handler returns.
    Ebbrr: EBBRR,
}

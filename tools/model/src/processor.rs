// SPDX-License-Identifier: GPL-2.0

//! The processors, and the differences between their facilities.

/// A version of the Power ISA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// v2.07.
    V207,
    /// v3.0.
    V300,
    /// v3.1.
    V31,
}

/// A processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processor {
    /// POWER8.
    Power8,
    /// POWER8E, the variant for several chips in a module.
    Power8E,
    /// POWER9.
    Power9,
    /// POWER10.
    Power10,
    /// Power11.
    Power11,
}

impl Processor {
    /// All processors.
    pub const ALL: [Self; 5] = [
        Self::Power8,
        Self::Power8E,
        Self::Power9,
        Self::Power10,
        Self::Power11,
    ];

    /// Returns the processor version register, with a revision that was sold.
    pub fn pvr(self) -> u32 {
        match self {
            Self::Power8 => 0x004d_0200,
            Self::Power8E => 0x004b_0201,
            Self::Power9 => 0x004e_1203,
            Self::Power10 => 0x0080_0200,
            Self::Power11 => 0x0082_0200,
        }
    }

    /// Returns the version of the ISA.
    pub fn isa(self) -> Isa {
        match self {
            Self::Power8 | Self::Power8E => Isa::V207,
            Self::Power9 => Isa::V300,
            Self::Power10 | Self::Power11 => Isa::V31,
        }
    }

    /// Returns whether the processor has the fault of POWER8: enabling alerts while a counter is
    /// negative causes no alert, although the condition exists.
    ///
    /// \[KVM\] `kvmhv_save_guest_pmu` in `book3s_hv_rmhandlers.S`, which works around it on every
    /// CPU of ISA v2.07.
    pub fn misses_negative_at_enable(self) -> bool {
        self.isa() == Isa::V207
    }

    /// Returns whether the processor has the fault of POWER8E: writing MMCR0\[PMAO\] as 1 causes no
    /// exception.
    ///
    /// \[kernel\] `CPU_FTR_PMAO_BUG`, `pmao_restore_workaround()` in `core-book3s.c`; \[KVM\]
    /// `kvmppc_fix_pmao` in `book3s_hv_rmhandlers.S`.
    pub fn ignores_pmao_write(self) -> bool {
        self == Self::Power8E
    }

    /// Returns whether SIER\[SIPR\] and \[SIHV\] show the privilege of the instruction in SIAR.
    /// Otherwise they are undefined.
    ///
    /// \[kernel\] `PPMU_P10` in `core-book3s.c`: "not always", so software must use SIAR's address.
    pub fn has_reliable_sipr(self) -> bool {
        self.isa() < Isa::V31
    }
}

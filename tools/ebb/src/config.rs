// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bits of `perf_event_attr.config` that request Event Based Branches.
//!
//! A raw event code fills the lower 60 bits; these are above. They are part of the interface
//! between the kernel's PMU driver and user space (compare
//! `PERF_EVENT_CONFIG_EBB_SHIFT` and its neighbours in
//! `arch/powerpc/include/asm/perf_event_server.h`).

/// Makes the event cause Event Based Branches (bit 63, counted from the least significant).
pub const EBB: u64 = 1 << 63;

/// Lets the program record and read the BHRB itself (bit 62). Valid only together with [`EBB`].
pub const BHRB: u64 = 1 << 62;

/// Least significant bit of the BHRB's Instruction Filtering Mode (bits 60-61).
pub const IFM_SHIFT: u32 = 60;

/// Mask of the Instruction Filtering Mode.
pub const IFM_MASK: u64 = 3 << IFM_SHIFT;

/// The branches that the BHRB records: the Instruction Filtering Mode, MMCRA\[32:33\].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Ifm {
    /// All branches.
    All = 0,
    /// Branches that set LR: calls.
    Calls = 1,
    /// Indirect branches on POWER10 and later; before, the targets of some branches.
    Indirect = 2,
    /// Conditional branches on POWER10 and later; before, the targets of some branches.
    Conditional = 3,
}

impl Ifm {
    /// Returns the mode with the number `ifm`, or `None` if `ifm` is above 3.
    #[must_use]
    pub const fn new(ifm: u8) -> Option<Self> {
        match ifm {
            0 => Some(Self::All),
            1 => Some(Self::Calls),
            2 => Some(Self::Indirect),
            3 => Some(Self::Conditional),
            _ => None,
        }
    }
}

/// Returns the bits that request the BHRB with the Instruction Filtering Mode `ifm`.
#[must_use]
pub const fn bhrb(ifm: Ifm) -> u64 {
    BHRB | (ifm as u64) << IFM_SHIFT
}

/// Least significant bit of the PMC number in an event code (bits 16-19).
pub const PMC_SHIFT: u32 = 16;

/// Returns the counter that an event code names, 1-6, or 0 if it names none.
#[must_use]
pub const fn pmc_of(code: u64) -> u8 {
    ((code >> PMC_SHIFT) & 0xf) as u8
}

/// Set in the code of an event of marked instructions, which the processor samples at random
/// (bit 8 of an event code).
pub const MARKED: u64 = 1 << 8;

/// `PM_CYC` on PMC1: processor cycles.
pub const CYCLES_PMC1: u64 = 0x1001e;

/// `PM_INST_CMPL` on PMC2: instructions completed.
pub const INSTRUCTIONS_PMC2: u64 = 0x20002;

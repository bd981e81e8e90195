// SPDX-License-Identifier: GPL-2.0
//! The bits of `perf_event_attr.config` that ask for Event Based Branches.
//!
//! A raw event code fills the lower 60 bits; these sit above it. They are part
//! of the interface between the kernel's PMU driver and user space (compare
//! `PERF_EVENT_CONFIG_EBB_SHIFT` and its neighbours in
//! `arch/powerpc/include/asm/perf_event_server.h`).

/// The event causes Event Based Branches (bit 63, counted from the least
/// significant).
pub const EBB: u64 = 1 << 63;

/// The program wants the BHRB recorded for itself (bit 62). Only together with
/// [`EBB`].
pub const BHRB: u64 = 1 << 62;

/// Least significant bit of the BHRB's Instruction Filtering Mode (bits 60-61).
pub const IFM_SHIFT: u32 = 60;

/// The field of the Instruction Filtering Mode.
pub const IFM_MASK: u64 = 3 << IFM_SHIFT;

/// Asks for the BHRB with the Instruction Filtering Mode `ifm`, 0-3.
#[must_use]
pub const fn bhrb(ifm: u8) -> u64 {
    BHRB | (ifm as u64 & 3) << IFM_SHIFT
}

/// Least significant bit of the PMC number in an event code (bits 16-19).
pub const PMC_SHIFT: u32 = 16;

/// The counter an event code names, 1-6, or 0 if it names none.
#[must_use]
pub const fn pmc_of(code: u64) -> u8 {
    ((code >> PMC_SHIFT) & 0xf) as u8
}

/// `PM_CYC` on PMC1: processor cycles.
pub const CYCLES_PMC1: u64 = 0x1001e;

/// `PM_INST_CMPL` on PMC2: instructions completed.
pub const INSTRUCTIONS_PMC2: u64 = 0x20002;

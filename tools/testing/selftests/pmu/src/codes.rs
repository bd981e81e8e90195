// SPDX-License-Identifier: GPL-2.0
//! The event codes that every POWER since ISA v2.07 knows.

/// PM_RUN_INST_CMPL on PMC5, its only place.
pub const RUN_INSTRUCTIONS: u64 = 0x500fa;
/// PM_RUN_CYC on PMC6, its only place.
pub const RUN_CYCLES: u64 = 0x600f4;
/// PM_INST_CMPL on whichever of PMC1 to PMC4 is free.
pub const INSTRUCTIONS: u64 = 0x2;
/// PM_CYC on whichever of PMC1 to PMC4 is free.
pub const CYCLES: u64 = 0x1e;

/// The event code that counts `event` (such as [`CYCLES`]) on one given PMC.
pub const fn on_pmc(pmc: u64, event: u64) -> u64 {
    pmc << 16 | event
}

/// Cycles on PMC1 to PMC4, then what PMC5 and PMC6 count: with these the PMU is full.
pub const ALL_COUNTERS: [u64; 6] = [
    on_pmc(1, CYCLES),
    on_pmc(2, CYCLES),
    on_pmc(3, CYCLES),
    on_pmc(4, CYCLES),
    RUN_INSTRUCTIONS,
    RUN_CYCLES,
];

/// The bit of the event code that asks for Event Based Branches.
pub const EBB: u64 = 1 << 63;

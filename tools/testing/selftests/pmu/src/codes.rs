// SPDX-License-Identifier: GPL-2.0
//! Event codes that all processors since ISA v2.07 know.

/// PM_RUN_INST_CMPL on PMC5, the only counter that counts it.
pub const RUN_INSTRUCTIONS: u64 = 0x500fa;
/// PM_RUN_CYC on PMC6, the only counter that counts it.
pub const RUN_CYCLES: u64 = 0x600f4;
/// PM_INST_CMPL on any free counter of PMC1 to PMC4.
pub const INSTRUCTIONS: u64 = 0x2;
/// PM_CYC on any free counter of PMC1 to PMC4.
pub const CYCLES: u64 = 0x1e;

/// Returns the event code that counts `event` (such as [`CYCLES`]) on the given PMC.
pub const fn on_pmc(pmc: u64, event: u64) -> u64 {
    pmc << 16 | event
}

/// Cycles on PMC1 to PMC4, instructions on PMC5 and run cycles on PMC6: these fill the PMU.
pub const ALL_COUNTERS: [u64; 6] = [
    on_pmc(1, CYCLES),
    on_pmc(2, CYCLES),
    on_pmc(3, CYCLES),
    on_pmc(4, CYCLES),
    RUN_INSTRUCTIONS,
    RUN_CYCLES,
];

/// The bit of the event code that requests Event Based Branches.
pub const EBB: u64 = 1 << 63;

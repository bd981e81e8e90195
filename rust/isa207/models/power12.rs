// SPDX-License-Identifier: GPL-2.0

//! Power12 (Power ISA v3.2): POWER10's PMU with different codes for three events.
//!
//! Source: the kernel's `arch/powerpc/perf/power12-{pmu.c,events-list.h}`.

use super::{
    model::*,
    power10, //
};

const GENERIC: GenericCodes = &[
    (CpuCycles, 0x600f4),          // PM_CYC
    (Instructions, 0x500fa),       // PM_INST_CMPL
    (CacheReferences, 0x100fc),    // PM_LD_REF_L1
    (CacheMisses, 0x400f0),        // PM_LD_DEMAND_MISS_L1_FIN
    (BranchInstructions, 0x10068), // PM_BR_FIN
    (BranchMisses, 0x27098),       // PM_MPRED_BR_FIN
];

const CACHE: CacheCodes = &power10::cache_codes(0x103_4000_0003_c040);

/// Power12.
pub(super) static POWER12: CpuModel = CpuModel {
    generic_events: GENERIC,
    cache_events: CACHE,
    ..power10::with_name("Power12")
};

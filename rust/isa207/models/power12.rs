// SPDX-License-Identifier: GPL-2.0

//! Power12 (Power ISA v3.2): POWER10's PMU, with other codes for three events.
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

const CACHE: CacheCodes = &[
    (CacheEvent::new(L1d, Read, Access), 0x100fc), // PM_LD_REF_L1
    (CacheEvent::new(L1d, Read, Miss), 0x3e054),   // PM_LD_MISS_L1
    (CacheEvent::new(L1d, Write, Miss), 0x300f0),  // PM_ST_MISS_L1
    (CacheEvent::new(L1d, Prefetch, Access), 0x1002c), // PM_LD_PREFETCH_CACHE_LINE_MISS
    (CacheEvent::new(L1i, Read, Access), 0x04080), // PM_INST_FROM_L1
    (CacheEvent::new(L1i, Read, Miss), 0x200fc),   // PM_L1_ICACHE_MISS
    (CacheEvent::new(L1i, Write, Access), 0x3f_0000_0001_c040), // PM_INST_FROM_L1MISS
    (CacheEvent::new(L1i, Prefetch, Access), 0x040a0), // PM_IC_PREF_REQ
    (CacheEvent::new(Dtlb, Read, Miss), 0x300fc),  // PM_DTLB_MISS
    (CacheEvent::new(Itlb, Read, Miss), 0x400fc),  // PM_ITLB_MISS
    (CacheEvent::new(Bpu, Read, Access), 0x4d05e), // PM_BR_CMPL
    (CacheEvent::new(Bpu, Read, Miss), 0x400f6),   // PM_BR_MPRED_CMPL
    (CacheEvent::new(Ll, Read, Access), 0x103_4000_0003_c040), // PM_DATA_FROM_L3
    (CacheEvent::new(Ll, Read, Miss), 0x300fe),    // PM_DATA_FROM_L3MISS
    (CacheEvent::new(Ll, Write, Access), 0x100_0004_6080), // PM_L2_ST
    (CacheEvent::new(Ll, Write, Miss), 0x26880),   // PM_L2_ST_MISS
    (CacheEvent::new(Ll, Prefetch, Access), 0x1000_0001_6080), // PM_L3_PF_MISS_L3
];

/// Power12.
pub(super) static POWER12: CpuModel = CpuModel {
    generic_events: GENERIC,
    cache_events: CACHE,
    ..power10::with_name("Power12")
};

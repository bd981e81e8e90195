// SPDX-License-Identifier: GPL-2.0

//! POWER10 (Power ISA v3.1), all revisions. Power11 has the same tables.
//!
//! Sources: POWER10 Performance Monitor Unit User's Guide v1.0;
//! `tools/perf/pmu-events/arch/powerpc/power10/`; the kernel's
//! `arch/powerpc/perf/power10-{pmu.c,events-list.h}`.

use super::model::*;

/// With MMCR0\[CC56RUN\], PMC5 and PMC6 ignore the run latch, like the other counters. perf's event
/// lists name the codes on PMC1, which are those of Power ISA v3.0 (see `architected.rs`).
const ALTERNATIVES: &[Codes] = &[
    // PM_INST_CMPL
    &[0x500fa, 0x00002, 0x100fe],
    // PM_CYC
    &[0x600f4, 0x0001e, 0x100f0],
];

/// PM_RUN_INST_CMPL on PMC4 and PM_RUN_CYC on PMC2 stop while the run latch is off.
const WHILE_RUNNING: &[Codes] = &[
    &[0x500fa, 0x00002, 0x100fe, 0x400fa],
    &[0x600f4, 0x0001e, 0x100f0, 0x200f4],
];

const GENERIC: GenericCodes = &[
    (CpuCycles, 0x600f4),          // PM_CYC
    (Instructions, 0x500fa),       // PM_INST_CMPL
    (CacheReferences, 0x100fc),    // PM_LD_REF_L1
    (CacheMisses, 0x400f0),        // PM_LD_DEMAND_MISS_L1_FIN
    (BranchInstructions, 0x2f04a), // PM_BR_FIN
    (BranchMisses, 0x3e098),       // PM_MPRED_BR_FIN
];

const GENERIC_DD1: GenericCodes = &[
    (CpuCycles, 0x600f4),          // PM_CYC
    (Instructions, 0x500fa),       // PM_INST_CMPL
    (CacheReferences, 0x100fc),    // PM_LD_REF_L1
    (CacheMisses, 0x3e054),        // PM_LD_MISS_L1
    (BranchInstructions, 0x4d05e), // PM_BR_CMPL
    (BranchMisses, 0x400f6),       // PM_BR_MPRED_CMPL
];

/// Returns the cache events' codes. Power12 has a different code for `PM_DATA_FROM_L3`.
pub(super) const fn cache_codes(data_from_l3: u64) -> [(CacheEvent, u64); 17] {
    [
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
        (CacheEvent::new(Ll, Read, Access), data_from_l3), // PM_DATA_FROM_L3
        (CacheEvent::new(Ll, Read, Miss), 0x300fe),    // PM_DATA_FROM_L3MISS
        (CacheEvent::new(Ll, Write, Access), 0x100_0004_6080), // PM_L2_ST
        (CacheEvent::new(Ll, Write, Miss), 0x26880),   // PM_L2_ST_MISS
        (CacheEvent::new(Ll, Prefetch, Access), 0x1000_0001_6080), // PM_L3_PF_MISS_L3
    ]
}

const CACHE: CacheCodes = &cache_codes(0x13_4000_0001_c040);

/// DD1 has no stores and no prefetches of the last level cache, the last three rows.
const CACHE_DD1: CacheCodes = CACHE.split_at(CACHE.len() - 3).0;

/// `PM_MRK_INST_CMPL` with random sampling of loads or stores; the threshold counter measures their
/// duration.
const MEMORY: &[NamedEvent] = &[
    named("mem-loads", 0x35_3404_01e0),
    named("mem-stores", 0x35_3c04_01e0),
];

/// Returns the model of POWER10 DD2 and later under the given name.
pub(super) const fn with_name(name: &'static str) -> CpuModel {
    CpuModel {
        name,
        isa: Isa::V31,
        layout: &Layout::V31,
        cc56run: true,
        has_siar_valid: true,
        has_memory_fields: true,
        reserved_sample_modes: SampleModes::RESERVED.with(&[0x10]),
        blacklist: Blacklist::NONE,
        alternatives: ALTERNATIVES,
        run_latch: WHILE_RUNNING,
        generic_events: GENERIC,
        cache_events: CACHE,
        other_events: MEMORY,
    }
}

static POWER10: CpuModel = with_name("POWER10");

static POWER10_DD1: CpuModel = CpuModel {
    generic_events: GENERIC_DD1,
    cache_events: CACHE_DD1,
    has_siar_valid: false,
    ..with_name("POWER10")
};

/// Returns the POWER10 model for this processor version register.
pub(super) fn revision(pvr: u32) -> &'static CpuModel {
    match (pvr >> 8) & 0xf {
        1 => &POWER10_DD1,
        _ => &POWER10,
    }
}

// SPDX-License-Identifier: GPL-2.0

//! POWER8, POWER8E and POWER8NVL (Power ISA v2.07).
//!
//! Sources: POWER8 Processor User's Manual, chapter "Performance Monitoring";
//! `tools/perf/pmu-events/arch/powerpc/power8/`; the kernel's
//! `arch/powerpc/perf/power8-{pmu.c,events-list.h}`.

use super::model::*;

const ALTERNATIVES: &[Codes] = &[
    // PM_MRK_ST_CMPL
    &[0x10134, 0x301e2],
    // PM_BR_MRK_2PATH
    &[0x10138, 0x40138],
    // PM_L3_CO_MEPF
    &[0x18082, 0x3e05e],
    // PM_MRK_DATA_FROM_L2MISS
    &[0x1d14e, 0x401e8],
    // PM_CMPLU_STALL
    &[0x1e054, 0x4000a],
    // PM_BR_2PATH
    &[0x20036, 0x40036],
    // PM_INST_DISP
    &[0x200f2, 0x300f2],
    // PM_RUN_CYC
    &[0x200f4, 0x600f4],
    // PM_MRK_FILT_MATCH
    &[0x2013c, 0x3012e],
    // PM_LD_MISS_L1
    &[0x3e054, 0x400f0],
    // PM_RUN_INST_CMPL
    &[0x400fa, 0x500fa],
];

const GENERIC: GenericCodes = &[
    (CpuCycles, 0x0001e),             // PM_CYC
    (Instructions, 0x00002),          // PM_INST_CMPL
    (CacheReferences, 0x100ee),       // PM_LD_REF_L1
    (CacheMisses, 0x3e054),           // PM_LD_MISS_L1
    (BranchInstructions, 0x10068),    // PM_BRU_FIN
    (BranchMisses, 0x400f6),          // PM_BR_MPRED_CMPL
    (StalledCyclesFrontend, 0x100f8), // PM_GCT_NOSLOT_CYC
    (StalledCyclesBackend, 0x4000a),  // PM_CMPLU_STALL
];

const CACHE: CacheCodes = &[
    (CacheEvent::new(L1d, Read, Access), 0x100ee), // PM_LD_REF_L1
    (CacheEvent::new(L1d, Read, Miss), 0x3e054),   // PM_LD_MISS_L1
    (CacheEvent::new(L1d, Write, Miss), 0x300f0),  // PM_ST_MISS_L1
    (CacheEvent::new(L1d, Prefetch, Access), 0x0d8b8), // PM_L1_PREF
    (CacheEvent::new(L1i, Read, Access), 0x04080), // PM_INST_FROM_L1
    (CacheEvent::new(L1i, Read, Miss), 0x200fd),   // PM_L1_ICACHE_MISS
    (CacheEvent::new(L1i, Write, Access), 0x0408c), // PM_L1_DEMAND_WRITE
    (CacheEvent::new(L1i, Prefetch, Access), 0x0408e), // PM_IC_PREF_WRITE
    (CacheEvent::new(Ll, Read, Access), 0x4c042),  // PM_DATA_FROM_L3
    (CacheEvent::new(Ll, Read, Miss), 0x300fe),    // PM_DATA_FROM_L3MISS
    (CacheEvent::new(Ll, Write, Access), 0x17080), // PM_L2_ST
    (CacheEvent::new(Ll, Write, Miss), 0x17082),   // PM_L2_ST_MISS
    (CacheEvent::new(Ll, Prefetch, Access), 0x4e052), // PM_L3_PREF_ALL
    (CacheEvent::new(Dtlb, Read, Miss), 0x300fc),  // PM_DTLB_MISS
    (CacheEvent::new(Itlb, Read, Miss), 0x400fc),  // PM_ITLB_MISS
    (CacheEvent::new(Bpu, Read, Access), 0x10068), // PM_BRU_FIN
    (CacheEvent::new(Bpu, Read, Miss), 0x400f6),   // PM_BR_MPRED_CMPL
];

/// `PM_MRK_INST_CMPL` with random sampling of loads and stores.
const MEMORY: &[NamedEvent] = &[named("mem_access", 0x104_01e0)];

/// POWER8.
pub(super) static POWER8: CpuModel = CpuModel {
    name: "POWER8",
    isa: Isa::V207,
    layout: &Layout::V207,
    cc56run: false,
    has_siar_valid: true,
    has_memory_fields: true,
    // The in-tree driver accepts every mode on this CPU.
    reserved_sample_modes: SampleModes::NONE,
    blacklist: Blacklist::NONE,
    alternatives: ALTERNATIVES,
    run_latch: RUN_LATCH,
    generic_events: GENERIC,
    cache_events: CACHE,
    other_events: MEMORY,
};

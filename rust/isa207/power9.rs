// SPDX-License-Identifier: GPL-2.0

//! POWER9 (Power ISA v3.0), all revisions.
//!
//! Sources: POWER9 Performance Monitor Unit User's Guide v1.2;
//! `tools/perf/pmu-events/arch/powerpc/power9/`; the kernel's
//! `arch/powerpc/perf/power9-{pmu.c,events-list.h}`.

use super::{
    alternatives::{
        none_on_bus,
        Pair, //
    },
    cpu::{
        named,
        CpuModel,
        Isa,
        NamedEvent,
        SampleModes, //
    },
    layout::Layout, //
    perf_event::{
        Cache,
        CacheEvent,
        CacheOp,
        CacheResult,
        GenericEvent, //
    },
};

const PM_CYC: u64 = 0x0001e;
const PM_INST_CMPL: u64 = 0x00002;
const PM_ICT_NOSLOT_CYC: u64 = 0x100f8;
const PM_CMPLU_STALL: u64 = 0x1e054;
const PM_BR_CMPL: u64 = 0x4d05e;
const PM_BR_MPRED_CMPL: u64 = 0x400f6;
const PM_LD_REF_L1: u64 = 0x100fc;
const PM_LD_MISS_L1_FIN: u64 = 0x2c04e;
const PM_ST_MISS_L1: u64 = 0x300f0;
const PM_L1_PREF: u64 = 0x20054;
const PM_INST_FROM_L1: u64 = 0x04080;
const PM_L1_ICACHE_MISS: u64 = 0x200fd;
const PM_L1_DEMAND_WRITE: u64 = 0x0408c;
const PM_IC_PREF_WRITE: u64 = 0x0488c;
const PM_DATA_FROM_L3: u64 = 0x4c042;
const PM_DATA_FROM_L3MISS: u64 = 0x300fe;
const PM_L3_PREF_ALL: u64 = 0x4e052;
const PM_DTLB_MISS: u64 = 0x300fc;
const PM_ITLB_MISS: u64 = 0x400fc;
/// `PM_MRK_INST_CMPL` with random sampling of loads, and the threshold counter
/// measuring how long they take.
const MEM_LOADS: u64 = 0x34_3404_01e0;
/// The same for stores.
const MEM_STORES: u64 = 0x34_3c04_01e0;

const ALTERNATIVES: &[Pair] = &[
    // PM_BR_2PATH
    [0x20036, 0x40036],
    // PM_INST_DISP
    [0x200f2, 0x300f2],
    // PM_RUN_CYC
    [0x200f4, 0x600f4],
    // PM_LD_MISS_L1
    [0x3e054, 0x400f0],
    // PM_RUN_INST_CMPL
    [0x400fa, 0x500fa],
];

const _: () = assert!(none_on_bus(ALTERNATIVES));

/// Counts wrongly on Nimbus DD2.1.
const BLACKLIST_DD21: &[u64] = &[
    0x10134, // PM_MRK_ST_DONE_L2
    0x1f056, // PM_RADIX_PWC_L1_HIT
    0x100f4, // PM_FLOP_CMPL
    0x20112, // PM_MRK_NTF_FIN
    0x2d024, // PM_RADIX_PWC_L2_HIT
    0x3405e, // PM_IFETCH_THROTTLE
    0x3e15c, // PM_MRK_L2_TM_ST_ABORT_SISTER
    0x3f056, // PM_RADIX_PWC_L3_HIT
    0x3006c, // PM_RUN_CYC_SMT2_MODE
    0x4e014, // PM_TM_TX_PASS_RUN_INST
    0x4003c, // PM_DISP_HELD_SYNC_HOLD
];

/// Counts wrongly on Nimbus DD2.2.
const BLACKLIST_DD22: &[u64] = &[
    0x1c058, // PM_DTLB_MISS_16G
    0x1c05a, // PM_DERAT_MISS_2M
    0x1c05c, // PM_DTLB_MISS_2M
    0x1d15c, // PM_MRK_DTLB_MISS_1G
    0x2c056, // PM_DTLB_MISS_4K
    0x2c05a, // PM_DERAT_MISS_1G
    0x2d152, // PM_MRK_DERAT_MISS_2M
    0x2d156, // PM_MRK_DTLB_MISS_4K
    0x2d15e, // PM_MRK_DTLB_MISS_16G
    0x3c056, // PM_DTLB_MISS_64K
    0x3d152, // PM_MRK_DERAT_MISS_1G
    0x3d156, // PM_MRK_DTLB_MISS_64K
    0x4003c, // PM_DISP_HELD_SYNC_HOLD
    0x4c056, // PM_DTLB_MISS_16M
    0x4c05a, // PM_DTLB_MISS_1G
    0x4c15e, // PM_MRK_DTLB_MISS_16M
];

/// Reserved here beyond what every CPU reserves.
static RESERVED_SAMPLE_MODES: SampleModes = SampleModes::RESERVED.with(&[0x0c]);

const GENERIC: &[(GenericEvent, u64)] = &[
    (GenericEvent::CpuCycles, PM_CYC),
    (GenericEvent::Instructions, PM_INST_CMPL),
    (GenericEvent::CacheReferences, PM_LD_REF_L1),
    (GenericEvent::CacheMisses, PM_LD_MISS_L1_FIN),
    (GenericEvent::BranchInstructions, PM_BR_CMPL),
    (GenericEvent::BranchMisses, PM_BR_MPRED_CMPL),
    (GenericEvent::StalledCyclesFrontend, PM_ICT_NOSLOT_CYC),
    (GenericEvent::StalledCyclesBackend, PM_CMPLU_STALL),
];

use Cache::*;
use CacheOp::*;
use CacheResult::*;

const CACHE: &[(CacheEvent, u64)] = &[
    (CacheEvent::new(L1d, Read, Access), PM_LD_REF_L1),
    (CacheEvent::new(L1d, Read, Miss), PM_LD_MISS_L1_FIN),
    (CacheEvent::new(L1d, Write, Miss), PM_ST_MISS_L1),
    (CacheEvent::new(L1d, Prefetch, Access), PM_L1_PREF),
    (CacheEvent::new(L1i, Read, Access), PM_INST_FROM_L1),
    (CacheEvent::new(L1i, Read, Miss), PM_L1_ICACHE_MISS),
    (CacheEvent::new(L1i, Write, Access), PM_L1_DEMAND_WRITE),
    (CacheEvent::new(L1i, Prefetch, Access), PM_IC_PREF_WRITE),
    (CacheEvent::new(Ll, Read, Access), PM_DATA_FROM_L3),
    (CacheEvent::new(Ll, Read, Miss), PM_DATA_FROM_L3MISS),
    (CacheEvent::new(Ll, Prefetch, Access), PM_L3_PREF_ALL),
    (CacheEvent::new(Dtlb, Read, Miss), PM_DTLB_MISS),
    (CacheEvent::new(Itlb, Read, Miss), PM_ITLB_MISS),
    (CacheEvent::new(Bpu, Read, Access), PM_BR_CMPL),
    (CacheEvent::new(Bpu, Read, Miss), PM_BR_MPRED_CMPL),
];

const NAMED: &[NamedEvent] = &[
    named("cpu-cycles", PM_CYC),
    named("stalled-cycles-frontend", PM_ICT_NOSLOT_CYC),
    named("stalled-cycles-backend", PM_CMPLU_STALL),
    named("instructions", PM_INST_CMPL),
    named("branch-instructions", PM_BR_CMPL),
    named("branch-misses", PM_BR_MPRED_CMPL),
    named("cache-references", PM_LD_REF_L1),
    named("cache-misses", PM_LD_MISS_L1_FIN),
    named("mem-loads", MEM_LOADS),
    named("mem-stores", MEM_STORES),
    named("L1-dcache-load-misses", PM_LD_MISS_L1_FIN),
    named("L1-dcache-loads", PM_LD_REF_L1),
    named("L1-dcache-prefetches", PM_L1_PREF),
    named("L1-dcache-store-misses", PM_ST_MISS_L1),
    named("L1-icache-load-misses", PM_L1_ICACHE_MISS),
    named("L1-icache-loads", PM_INST_FROM_L1),
    named("L1-icache-prefetches", PM_IC_PREF_WRITE),
    named("LLC-load-misses", PM_DATA_FROM_L3MISS),
    named("LLC-loads", PM_DATA_FROM_L3),
    named("LLC-prefetches", PM_L3_PREF_ALL),
    named("branch-load-misses", PM_BR_MPRED_CMPL),
    named("branch-loads", PM_BR_CMPL),
    named("dTLB-load-misses", PM_DTLB_MISS),
    named("iTLB-load-misses", PM_ITLB_MISS),
];

const fn power9(blacklist: &'static [u64]) -> CpuModel {
    CpuModel {
        name: "POWER9",
        isa: Isa::V300,
        layout: &Layout::V300,
        reserved_sample_modes: &RESERVED_SAMPLE_MODES,
        blacklist,
        alternatives: ALTERNATIVES,
        generic_events: GENERIC,
        cache_events: CACHE,
        named_events: NAMED,
    }
}

static POWER9: CpuModel = power9(&[]);
static POWER9_DD21: CpuModel = power9(BLACKLIST_DD21);
static POWER9_DD22: CpuModel = power9(BLACKLIST_DD22);

/// The POWER9 with this processor version register.
pub(super) fn revision(pvr: u32) -> &'static CpuModel {
    /// Set on Cumulus, which counts right; clear on Nimbus.
    const CUMULUS: u32 = 0x2000;
    let (major, minor) = ((pvr >> 8) & 0xf, pvr & 0xf);
    match (major, minor) {
        _ if pvr & CUMULUS != 0 => &POWER9,
        (2, 1) => &POWER9_DD21,
        (2, 2) => &POWER9_DD22,
        _ => &POWER9,
    }
}

// SPDX-License-Identifier: GPL-2.0

//! POWER8, POWER8E and POWER8NVL (Power ISA v2.07).
//!
//! Sources: POWER8 Processor User's Manual, chapter "Performance Monitoring";
//! `tools/perf/pmu-events/arch/powerpc/power8/`; the kernel's
//! `arch/powerpc/perf/power8-{pmu.c,events-list.h}`.

use super::{
    alternatives::Pair,
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
const PM_GCT_NOSLOT_CYC: u64 = 0x100f8;
const PM_CMPLU_STALL: u64 = 0x4000a;
const PM_BRU_FIN: u64 = 0x10068;
const PM_BR_MPRED_CMPL: u64 = 0x400f6;
const PM_LD_REF_L1: u64 = 0x100ee;
const PM_LD_MISS_L1: u64 = 0x3e054;
const PM_ST_MISS_L1: u64 = 0x300f0;
const PM_L1_PREF: u64 = 0x0d8b8;
const PM_INST_FROM_L1: u64 = 0x04080;
const PM_L1_ICACHE_MISS: u64 = 0x200fd;
const PM_L1_DEMAND_WRITE: u64 = 0x0408c;
const PM_IC_PREF_WRITE: u64 = 0x0408e;
const PM_DATA_FROM_L3: u64 = 0x4c042;
const PM_DATA_FROM_L3MISS: u64 = 0x300fe;
const PM_L2_ST: u64 = 0x17080;
const PM_L2_ST_MISS: u64 = 0x17082;
const PM_L3_PREF_ALL: u64 = 0x4e052;
const PM_DTLB_MISS: u64 = 0x300fc;
const PM_ITLB_MISS: u64 = 0x400fc;
/// `PM_MRK_INST_CMPL` with random sampling of loads and stores.
const MEM_ACCESS: u64 = 0x104_01e0;

const ALTERNATIVES: &[Pair] = &[
    // PM_MRK_ST_CMPL
    [0x10134, 0x301e2],
    // PM_BR_MRK_2PATH
    [0x10138, 0x40138],
    // PM_L3_CO_MEPF
    [0x18082, 0x3e05e],
    // PM_MRK_DATA_FROM_L2MISS
    [0x1d14e, 0x401e8],
    // PM_CMPLU_STALL
    [0x1e054, PM_CMPLU_STALL],
    // PM_BR_2PATH
    [0x20036, 0x40036],
    // PM_INST_DISP
    [0x200f2, 0x300f2],
    // PM_RUN_CYC
    [0x200f4, 0x600f4],
    // PM_MRK_FILT_MATCH
    [0x2013c, 0x3012e],
    // PM_LD_MISS_L1
    [PM_LD_MISS_L1, 0x400f0],
    // PM_RUN_INST_CMPL
    [0x400fa, 0x500fa],
];

const GENERIC: &[(GenericEvent, u64)] = &[
    (GenericEvent::CpuCycles, PM_CYC),
    (GenericEvent::Instructions, PM_INST_CMPL),
    (GenericEvent::CacheReferences, PM_LD_REF_L1),
    (GenericEvent::CacheMisses, PM_LD_MISS_L1),
    (GenericEvent::BranchInstructions, PM_BRU_FIN),
    (GenericEvent::BranchMisses, PM_BR_MPRED_CMPL),
    (GenericEvent::StalledCyclesFrontend, PM_GCT_NOSLOT_CYC),
    (GenericEvent::StalledCyclesBackend, PM_CMPLU_STALL),
];

use Cache::*;
use CacheOp::*;
use CacheResult::*;

const CACHE: &[(CacheEvent, u64)] = &[
    (CacheEvent::new(L1d, Read, Access), PM_LD_REF_L1),
    (CacheEvent::new(L1d, Read, Miss), PM_LD_MISS_L1),
    (CacheEvent::new(L1d, Write, Miss), PM_ST_MISS_L1),
    (CacheEvent::new(L1d, Prefetch, Access), PM_L1_PREF),
    (CacheEvent::new(L1i, Read, Access), PM_INST_FROM_L1),
    (CacheEvent::new(L1i, Read, Miss), PM_L1_ICACHE_MISS),
    (CacheEvent::new(L1i, Write, Access), PM_L1_DEMAND_WRITE),
    (CacheEvent::new(L1i, Prefetch, Access), PM_IC_PREF_WRITE),
    (CacheEvent::new(Ll, Read, Access), PM_DATA_FROM_L3),
    (CacheEvent::new(Ll, Read, Miss), PM_DATA_FROM_L3MISS),
    (CacheEvent::new(Ll, Write, Access), PM_L2_ST),
    (CacheEvent::new(Ll, Write, Miss), PM_L2_ST_MISS),
    (CacheEvent::new(Ll, Prefetch, Access), PM_L3_PREF_ALL),
    (CacheEvent::new(Dtlb, Read, Miss), PM_DTLB_MISS),
    (CacheEvent::new(Itlb, Read, Miss), PM_ITLB_MISS),
    (CacheEvent::new(Bpu, Read, Access), PM_BRU_FIN),
    (CacheEvent::new(Bpu, Read, Miss), PM_BR_MPRED_CMPL),
];

const NAMED: &[NamedEvent] = &[
    named("cpu-cycles", PM_CYC),
    named("stalled-cycles-frontend", PM_GCT_NOSLOT_CYC),
    named("stalled-cycles-backend", PM_CMPLU_STALL),
    named("instructions", PM_INST_CMPL),
    named("branch-instructions", PM_BRU_FIN),
    named("branch-misses", PM_BR_MPRED_CMPL),
    named("cache-references", PM_LD_REF_L1),
    named("cache-misses", PM_LD_MISS_L1),
    named("mem_access", MEM_ACCESS),
    named("L1-dcache-load-misses", PM_LD_MISS_L1),
    named("L1-dcache-loads", PM_LD_REF_L1),
    named("L1-dcache-prefetches", PM_L1_PREF),
    named("L1-dcache-store-misses", PM_ST_MISS_L1),
    named("L1-icache-load-misses", PM_L1_ICACHE_MISS),
    named("L1-icache-loads", PM_INST_FROM_L1),
    named("L1-icache-prefetches", PM_IC_PREF_WRITE),
    named("LLC-load-misses", PM_DATA_FROM_L3MISS),
    named("LLC-loads", PM_DATA_FROM_L3),
    named("LLC-prefetches", PM_L3_PREF_ALL),
    named("LLC-store-misses", PM_L2_ST_MISS),
    named("LLC-stores", PM_L2_ST),
    named("branch-load-misses", PM_BR_MPRED_CMPL),
    named("branch-loads", PM_BRU_FIN),
    named("dTLB-load-misses", PM_DTLB_MISS),
    named("iTLB-load-misses", PM_ITLB_MISS),
];

/// POWER8.
pub(super) static POWER8: CpuModel = CpuModel {
    name: "POWER8",
    isa: Isa::V207,
    layout: &Layout::V207,
    // The in-tree driver lets every mode through on this CPU.
    reserved_sample_modes: &SampleModes::NONE,
    blacklist: &[],
    alternatives: ALTERNATIVES,
    generic_events: GENERIC,
    cache_events: CACHE,
    named_events: NAMED,
};

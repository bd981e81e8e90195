// SPDX-License-Identifier: GPL-2.0

//! POWER10 (Power ISA v3.1), all revisions. Power11 shares its tables.
//!
//! Sources: POWER10 Performance Monitor Unit User's Guide v1.0;
//! `tools/perf/pmu-events/arch/powerpc/power10/`; the kernel's
//! `arch/powerpc/perf/power10-{pmu.c,events-list.h}`.

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

const PM_CYC: u64 = 0x600f4;
const PM_INST_CMPL: u64 = 0x500fa;
const PM_BR_CMPL: u64 = 0x4d05e;
const PM_BR_MPRED_CMPL: u64 = 0x400f6;
const PM_BR_FIN: u64 = 0x2f04a;
const PM_MPRED_BR_FIN: u64 = 0x3e098;
const PM_LD_DEMAND_MISS_L1_FIN: u64 = 0x400f0;
const PM_LD_REF_L1: u64 = 0x100fc;
const PM_LD_MISS_L1: u64 = 0x3e054;
const PM_ST_MISS_L1: u64 = 0x300f0;
const PM_LD_PREFETCH_CACHE_LINE_MISS: u64 = 0x1002c;
const PM_L1_ICACHE_MISS: u64 = 0x200fc;
const PM_INST_FROM_L1: u64 = 0x04080;
const PM_INST_FROM_L1MISS: u64 = 0x3f_0000_0001_c040;
const PM_IC_PREF_REQ: u64 = 0x040a0;
const PM_DATA_FROM_L3: u64 = 0x13_4000_0001_c040;
const PM_DATA_FROM_L3MISS: u64 = 0x300fe;
const PM_L2_ST: u64 = 0x100_0004_6080;
const PM_L2_ST_MISS: u64 = 0x26880;
const PM_L3_PF_MISS_L3: u64 = 0x1000_0001_6080;
const PM_DTLB_MISS: u64 = 0x300fc;
const PM_ITLB_MISS: u64 = 0x400fc;
/// `PM_MRK_INST_CMPL` with random sampling of loads, and the threshold counter
/// measuring how long they take.
const MEM_LOADS: u64 = 0x35_3404_01e0;
/// The same for stores.
const MEM_STORES: u64 = 0x35_3c04_01e0;

/// With MMCR0\[CC56RUN\] PMC5 and PMC6 do not heed the run latch, so they count
/// the same as any other counter.
const ALTERNATIVES: &[Pair] = &[[0x00002, PM_INST_CMPL], [0x0001e, PM_CYC]];

/// Reserved here beyond what every CPU reserves.
static RESERVED_SAMPLE_MODES: SampleModes = SampleModes::RESERVED.with(&[0x10]);

const GENERIC: &[(GenericEvent, u64)] = &[
    (GenericEvent::CpuCycles, PM_CYC),
    (GenericEvent::Instructions, PM_INST_CMPL),
    (GenericEvent::CacheReferences, PM_LD_REF_L1),
    (GenericEvent::CacheMisses, PM_LD_DEMAND_MISS_L1_FIN),
    (GenericEvent::BranchInstructions, PM_BR_FIN),
    (GenericEvent::BranchMisses, PM_MPRED_BR_FIN),
];

const GENERIC_DD1: &[(GenericEvent, u64)] = &[
    (GenericEvent::CpuCycles, PM_CYC),
    (GenericEvent::Instructions, PM_INST_CMPL),
    (GenericEvent::CacheReferences, PM_LD_REF_L1),
    (GenericEvent::CacheMisses, PM_LD_MISS_L1),
    (GenericEvent::BranchInstructions, PM_BR_CMPL),
    (GenericEvent::BranchMisses, PM_BR_MPRED_CMPL),
];

use Cache::*;
use CacheOp::*;
use CacheResult::*;

const CACHE: &[(CacheEvent, u64)] = &[
    (CacheEvent::new(L1d, Read, Access), PM_LD_REF_L1),
    (CacheEvent::new(L1d, Read, Miss), PM_LD_MISS_L1),
    (CacheEvent::new(L1d, Write, Miss), PM_ST_MISS_L1),
    (
        CacheEvent::new(L1d, Prefetch, Access),
        PM_LD_PREFETCH_CACHE_LINE_MISS,
    ),
    (CacheEvent::new(L1i, Read, Access), PM_INST_FROM_L1),
    (CacheEvent::new(L1i, Read, Miss), PM_L1_ICACHE_MISS),
    (CacheEvent::new(L1i, Write, Access), PM_INST_FROM_L1MISS),
    (CacheEvent::new(L1i, Prefetch, Access), PM_IC_PREF_REQ),
    (CacheEvent::new(Dtlb, Read, Miss), PM_DTLB_MISS),
    (CacheEvent::new(Itlb, Read, Miss), PM_ITLB_MISS),
    (CacheEvent::new(Bpu, Read, Access), PM_BR_CMPL),
    (CacheEvent::new(Bpu, Read, Miss), PM_BR_MPRED_CMPL),
    (CacheEvent::new(Ll, Read, Access), PM_DATA_FROM_L3),
    (CacheEvent::new(Ll, Read, Miss), PM_DATA_FROM_L3MISS),
    (CacheEvent::new(Ll, Write, Access), PM_L2_ST),
    (CacheEvent::new(Ll, Write, Miss), PM_L2_ST_MISS),
    (CacheEvent::new(Ll, Prefetch, Access), PM_L3_PF_MISS_L3),
];

/// DD1 counts neither writes nor prefetches of L3: the last three rows.
const CACHE_DD1: &[(CacheEvent, u64)] = CACHE.split_at(CACHE.len() - 3).0;

const NAMED: &[NamedEvent] = &[
    named("cpu-cycles", PM_CYC),
    named("instructions", PM_INST_CMPL),
    named("branch-instructions", PM_BR_FIN),
    named("branch-misses", PM_MPRED_BR_FIN),
    named("cache-references", PM_LD_REF_L1),
    named("cache-misses", PM_LD_DEMAND_MISS_L1_FIN),
    named("mem-loads", MEM_LOADS),
    named("mem-stores", MEM_STORES),
    named("L1-dcache-load-misses", PM_LD_MISS_L1),
    named("L1-dcache-loads", PM_LD_REF_L1),
    named("L1-dcache-prefetches", PM_LD_PREFETCH_CACHE_LINE_MISS),
    named("L1-dcache-store-misses", PM_ST_MISS_L1),
    named("L1-icache-load-misses", PM_L1_ICACHE_MISS),
    named("L1-icache-loads", PM_INST_FROM_L1),
    named("L1-icache-prefetches", PM_IC_PREF_REQ),
    named("LLC-load-misses", PM_DATA_FROM_L3MISS),
    named("LLC-loads", PM_DATA_FROM_L3),
    named("LLC-prefetches", PM_L3_PF_MISS_L3),
    named("LLC-store-misses", PM_L2_ST_MISS),
    named("LLC-stores", PM_L2_ST),
    named("branch-load-misses", PM_BR_MPRED_CMPL),
    named("branch-loads", PM_BR_CMPL),
    named("dTLB-load-misses", PM_DTLB_MISS),
    named("iTLB-load-misses", PM_ITLB_MISS),
];

const NAMED_DD1: &[NamedEvent] = &[
    named("cpu-cycles", PM_CYC),
    named("instructions", PM_INST_CMPL),
    named("branch-instructions", PM_BR_CMPL),
    named("branch-misses", PM_BR_MPRED_CMPL),
    named("cache-references", PM_LD_REF_L1),
    named("cache-misses", PM_LD_MISS_L1),
    named("mem-loads", MEM_LOADS),
    named("mem-stores", MEM_STORES),
    named("L1-dcache-load-misses", PM_LD_MISS_L1),
    named("L1-dcache-loads", PM_LD_REF_L1),
    named("L1-dcache-prefetches", PM_LD_PREFETCH_CACHE_LINE_MISS),
    named("L1-dcache-store-misses", PM_ST_MISS_L1),
    named("L1-icache-load-misses", PM_L1_ICACHE_MISS),
    named("L1-icache-loads", PM_INST_FROM_L1),
    named("L1-icache-prefetches", PM_IC_PREF_REQ),
    named("LLC-load-misses", PM_DATA_FROM_L3MISS),
    named("LLC-loads", PM_DATA_FROM_L3),
    named("branch-load-misses", PM_BR_MPRED_CMPL),
    named("branch-loads", PM_BR_CMPL),
    named("dTLB-load-misses", PM_DTLB_MISS),
    named("iTLB-load-misses", PM_ITLB_MISS),
];

/// A PMU of ISA v3.1 with the events that POWER10 has from DD2 on.
pub(super) const fn with_name(name: &'static str) -> CpuModel {
    CpuModel {
        name,
        isa: Isa::V31,
        layout: &Layout::V31,
        reserved_sample_modes: &RESERVED_SAMPLE_MODES,
        blacklist: &[],
        alternatives: ALTERNATIVES,
        generic_events: GENERIC,
        cache_events: CACHE,
        named_events: NAMED,
    }
}

static POWER10: CpuModel = with_name("POWER10");

static POWER10_DD1: CpuModel = CpuModel {
    generic_events: GENERIC_DD1,
    cache_events: CACHE_DD1,
    named_events: NAMED_DD1,
    ..with_name("POWER10")
};

/// The POWER10 with this processor version register.
pub(super) fn revision(pvr: u32) -> &'static CpuModel {
    let major = (pvr >> 8) & 0xf;
    match major {
        1 => &POWER10_DD1,
        _ => &POWER10,
    }
}

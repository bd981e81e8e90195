// SPDX-License-Identifier: GPL-2.0

//! A processor without a model of its own: the events that Power ISA v3.0B and later define.
//!
//! Sources: Power ISA v3.0B, Book III, "Performance Monitor Counters" (PMCxSEL 0xf0 and above);
//! the kernel's `arch/powerpc/perf/generic-compat-pmu.c`, which uses the same name.

use super::model::*;

const ALTERNATIVES: &[Codes] = &[
    // PM_CYC
    &[0x100f0, 0x600f4],
    // PM_INST_CMPL
    &[0x100fe, 0x500fa],
    // PM_INST_DISP
    &[0x200f2, 0x300f2],
];

const GENERIC: GenericCodes = &[
    (CpuCycles, 0x600f4),             // PM_CYC
    (Instructions, 0x500fa),          // PM_INST_CMPL
    (CacheMisses, 0x400f0),           // PM_LD_MISS_L1
    (BranchMisses, 0x400f6),          // PM_BR_MPRED_CMPL
    (StalledCyclesFrontend, 0x100f8), // PM_NO_INST_AVAIL
];

const CACHE: CacheCodes = &[
    (CacheEvent::new(L1d, Read, Miss), 0x400f0), // PM_LD_MISS_L1
    (CacheEvent::new(L1d, Write, Miss), 0x300f0), // PM_ST_MISS_L1
    (CacheEvent::new(L1i, Read, Miss), 0x200fc), // PM_L1_ICACHE_MISS
    (CacheEvent::new(Ll, Read, Miss), 0x300fe),  // PM_DATA_FROM_L3MISS
    (CacheEvent::new(Dtlb, Read, Miss), 0x300fc), // PM_DTLB_MISS
    (CacheEvent::new(Itlb, Read, Miss), 0x400fc), // PM_ITLB_MISS
    (CacheEvent::new(Bpu, Read, Miss), 0x400f6), // PM_BR_MPRED_CMPL
];

const fn of(isa: Isa) -> CpuModel {
    CpuModel {
        name: "ISAv3",
        isa,
        layout: &Layout::ARCHITECTED,
        cc56run: true,
        has_siar_valid: true,
        has_memory_fields: false,
        reserved_sample_modes: SampleModes::NONE,
        blacklist: Blacklist::NONE,
        alternatives: ALTERNATIVES,
        run_latch: &[],
        generic_events: GENERIC,
        cache_events: CACHE,
        other_events: &[],
    }
}

/// Model of ISA v3.0.
pub(super) static V300: CpuModel = of(Isa::V300);

/// Model of ISA v3.1 or later.
pub(super) static V31: CpuModel = of(Isa::V31);

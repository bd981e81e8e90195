// SPDX-License-Identifier: GPL-2.0

//! POWER9 (Power ISA v3.0), all revisions.
//!
//! Sources: POWER9 Performance Monitor Unit User's Guide v1.2;
//! `tools/perf/pmu-events/arch/powerpc/power9/`; the kernel's
//! `arch/powerpc/perf/power9-{pmu.c,events-list.h}`.

use super::{
    super::codes::event_code::EventCode,
    model::*, //
};

const ALTERNATIVES: &[Codes] = &[
    // PM_BR_2PATH
    &[0x20036, 0x40036],
    // PM_INST_DISP
    &[0x200f2, 0x300f2],
    // PM_RUN_CYC
    &[0x200f4, 0x600f4],
    // PM_LD_MISS_L1
    &[0x3e054, 0x400f0],
    // PM_RUN_INST_CMPL
    &[0x400fa, 0x500fa],
];

// The search relies on this: no alternative is an event of units 6 to 9, for which `BusNeedsPmc4`
// is a rule about the whole group.
const _: () = {
    let mut rows = ALTERNATIVES;
    while let [row, others @ ..] = rows {
        let mut codes: &[u64] = row;
        while let [code, rest @ ..] = codes {
            assert!(!matches!(EventCode(*code).unit(), 6..=9));
            codes = rest;
        }
        rows = others;
    }
};

/// Codes that count wrongly on Nimbus DD2.1.
const BLACKLIST_DD21: &[u64] = &[
    0x100f4, // PM_FLOP_CMPL
    0x10134, // PM_MRK_ST_DONE_L2
    0x1f056, // PM_RADIX_PWC_L1_HIT
    0x20112, // PM_MRK_NTF_FIN
    0x2d024, // PM_RADIX_PWC_L2_HIT
    0x3006c, // PM_RUN_CYC_SMT2_MODE
    0x3405e, // PM_IFETCH_THROTTLE
    0x3e15c, // PM_MRK_L2_TM_ST_ABORT_SISTER
    0x3f056, // PM_RADIX_PWC_L3_HIT
    0x4003c, // PM_DISP_HELD_SYNC_HOLD
    0x4e014, // PM_TM_TX_PASS_RUN_INST
];

/// Codes that count wrongly on Nimbus DD2.2.
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

const GENERIC: GenericCodes = &[
    (CpuCycles, 0x0001e),             // PM_CYC
    (Instructions, 0x00002),          // PM_INST_CMPL
    (CacheReferences, 0x100fc),       // PM_LD_REF_L1
    (CacheMisses, 0x2c04e),           // PM_LD_MISS_L1_FIN
    (BranchInstructions, 0x4d05e),    // PM_BR_CMPL
    (BranchMisses, 0x400f6),          // PM_BR_MPRED_CMPL
    (StalledCyclesFrontend, 0x100f8), // PM_ICT_NOSLOT_CYC
    (StalledCyclesBackend, 0x1e054),  // PM_CMPLU_STALL
];

const CACHE: CacheCodes = &[
    (CacheEvent::new(L1d, Read, Access), 0x100fc), // PM_LD_REF_L1
    (CacheEvent::new(L1d, Read, Miss), 0x2c04e),   // PM_LD_MISS_L1_FIN
    (CacheEvent::new(L1d, Write, Miss), 0x300f0),  // PM_ST_MISS_L1
    (CacheEvent::new(L1d, Prefetch, Access), 0x20054), // PM_L1_PREF
    (CacheEvent::new(L1i, Read, Access), 0x04080), // PM_INST_FROM_L1
    (CacheEvent::new(L1i, Read, Miss), 0x200fd),   // PM_L1_ICACHE_MISS
    (CacheEvent::new(L1i, Write, Access), 0x0408c), // PM_L1_DEMAND_WRITE
    (CacheEvent::new(L1i, Prefetch, Access), 0x0488c), // PM_IC_PREF_WRITE
    (CacheEvent::new(Ll, Read, Access), 0x4c042),  // PM_DATA_FROM_L3
    (CacheEvent::new(Ll, Read, Miss), 0x300fe),    // PM_DATA_FROM_L3MISS
    (CacheEvent::new(Ll, Prefetch, Access), 0x4e052), // PM_L3_PREF_ALL
    (CacheEvent::new(Dtlb, Read, Miss), 0x300fc),  // PM_DTLB_MISS
    (CacheEvent::new(Itlb, Read, Miss), 0x400fc),  // PM_ITLB_MISS
    (CacheEvent::new(Bpu, Read, Access), 0x4d05e), // PM_BR_CMPL
    (CacheEvent::new(Bpu, Read, Miss), 0x400f6),   // PM_BR_MPRED_CMPL
];

/// `PM_MRK_INST_CMPL` with random sampling of loads or stores; the threshold counter measures their
/// duration.
const MEMORY: &[NamedEvent] = &[
    named("mem-loads", 0x34_3404_01e0),
    named("mem-stores", 0x34_3c04_01e0),
];

const fn power9(blacklist: &'static [u64]) -> CpuModel {
    CpuModel {
        name: "POWER9",
        isa: Isa::V300,
        layout: &Layout::V300,
        cc56run: false,
        has_siar_valid: true,
        has_memory_fields: true,
        reserved_sample_modes: SampleModes::RESERVED.with(&[0x0c]),
        blacklist: Blacklist::new(blacklist),
        alternatives: ALTERNATIVES,
        run_latch: RUN_LATCH,
        generic_events: GENERIC,
        cache_events: CACHE,
        other_events: MEMORY,
    }
}

static POWER9: CpuModel = power9(&[]);
static POWER9_DD21: CpuModel = power9(BLACKLIST_DD21);
static POWER9_DD22: CpuModel = power9(BLACKLIST_DD22);

/// Returns the POWER9 model for this processor version register.
pub(super) fn revision(pvr: u32) -> &'static CpuModel {
    /// PVR: set on Cumulus, which has no blacklist; clear on Nimbus.
    const CUMULUS: u32 = 0x2000;
    let (major, minor) = ((pvr >> 8) & 0xf, pvr & 0xf);
    match (major, minor) {
        _ if pvr & CUMULUS != 0 => &POWER9,
        (2, 1) => &POWER9_DD21,
        (2, 2) => &POWER9_DD22,
        _ => &POWER9,
    }
}

// SPDX-License-Identifier: GPL-2.0

//! perf's common events: `PERF_TYPE_HARDWARE` and `PERF_TYPE_HW_CACHE`, and their names.
//!
//! The numbers are user space ABI (`include/uapi/linux/perf_event.h`).

/// An event of `PERF_TYPE_HARDWARE` (`PERF_COUNT_HW_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenericEvent {
    /// `PERF_COUNT_HW_CPU_CYCLES`
    CpuCycles,
    /// `PERF_COUNT_HW_INSTRUCTIONS`
    Instructions,
    /// `PERF_COUNT_HW_CACHE_REFERENCES`
    CacheReferences,
    /// `PERF_COUNT_HW_CACHE_MISSES`
    CacheMisses,
    /// `PERF_COUNT_HW_BRANCH_INSTRUCTIONS`
    BranchInstructions,
    /// `PERF_COUNT_HW_BRANCH_MISSES`
    BranchMisses,
    /// `PERF_COUNT_HW_BUS_CYCLES`
    BusCycles,
    /// `PERF_COUNT_HW_STALLED_CYCLES_FRONTEND`
    StalledCyclesFrontend,
    /// `PERF_COUNT_HW_STALLED_CYCLES_BACKEND`
    StalledCyclesBackend,
    /// `PERF_COUNT_HW_REF_CPU_CYCLES`
    RefCpuCycles,
}

impl GenericEvent {
    /// Returns the event with the number `attr.config`; `None` if perf has no event of this number.
    pub const fn from_config(config: u64) -> Option<Self> {
        Some(match config {
            0 => Self::CpuCycles,
            1 => Self::Instructions,
            2 => Self::CacheReferences,
            3 => Self::CacheMisses,
            4 => Self::BranchInstructions,
            5 => Self::BranchMisses,
            6 => Self::BusCycles,
            7 => Self::StalledCyclesFrontend,
            8 => Self::StalledCyclesBackend,
            9 => Self::RefCpuCycles,
            _ => return None,
        })
    }
}

/// The cache of a cache event (`PERF_COUNT_HW_CACHE_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cache {
    /// Level 1 data cache
    L1d,
    /// Level 1 instruction cache
    L1i,
    /// Last level cache
    Ll,
    /// Data TLB
    Dtlb,
    /// Instruction TLB
    Itlb,
    /// Branch prediction unit
    Bpu,
    /// Memory of the node
    Node,
}

/// The access of a cache event (`PERF_COUNT_HW_CACHE_OP_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheOp {
    /// Read
    Read,
    /// Write
    Write,
    /// Prefetch
    Prefetch,
}

/// The outcome of a cache event (`PERF_COUNT_HW_CACHE_RESULT_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheResult {
    /// All accesses
    Access,
    /// Misses only
    Miss,
}

/// An event of `PERF_TYPE_HW_CACHE` that some machine could have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheEvent {
    cache: Cache,
    op: CacheOp,
    result: CacheResult,
}

impl CacheEvent {
    /// Returns the event that `attr.config` describes: cache in bits 0 to 7, access in bits 8 to
    /// 15, outcome in bits 16 to 23.
    ///
    /// Returns `None` if a part is out of range or if no machine can have the event, such as a
    /// prefetch by the branch prediction unit. perf gets EINVAL in both cases.
    pub fn from_config(config: u64) -> Option<Self> {
        use Cache::*;
        const CACHES: [Cache; 7] = [L1d, L1i, Ll, Dtlb, Itlb, Bpu, Node];
        let [cache, op, result, rest @ ..] = config.to_le_bytes();
        if rest != [0; 5] {
            return None;
        }
        let cache = *CACHES.get(usize::from(cache))?;
        let op = *[CacheOp::Read, CacheOp::Write, CacheOp::Prefetch].get(usize::from(op))?;
        let result = *[CacheResult::Access, CacheResult::Miss].get(usize::from(result))?;
        let event = Self { cache, op, result };
        event.can_exist().then_some(event)
    }

    /// Returns an event for the tables of the models.
    pub(crate) const fn new(cache: Cache, op: CacheOp, result: CacheResult) -> Self {
        Self { cache, op, result }
    }

    /// Returns whether a machine can have the event at all.
    fn can_exist(&self) -> bool {
        match (self.cache, self.op, self.result) {
            // Nothing stores to the instruction cache: a "write" fills a line, so it cannot miss.
            (Cache::L1i, CacheOp::Write, CacheResult::Miss) => false,
            // TLBs and branch predictors are only read.
            (Cache::Dtlb | Cache::Itlb | Cache::Bpu, op, _) => op == CacheOp::Read,
            // A core's PMU cannot observe the memory controllers.
            (Cache::Node, _, _) => false,
            _ => true,
        }
    }
}

/// The files of sysfs `events/` for generic events, named as in the perf tool.
pub(crate) static GENERIC_NAMES: [(&str, GenericEvent); 8] = [
    ("cpu-cycles", GenericEvent::CpuCycles),
    ("instructions", GenericEvent::Instructions),
    ("cache-references", GenericEvent::CacheReferences),
    ("cache-misses", GenericEvent::CacheMisses),
    ("branch-instructions", GenericEvent::BranchInstructions),
    ("branch-misses", GenericEvent::BranchMisses),
    (
        "stalled-cycles-frontend",
        GenericEvent::StalledCyclesFrontend,
    ),
    ("stalled-cycles-backend", GenericEvent::StalledCyclesBackend),
];

/// The files of sysfs `events/` for cache events, named as in the perf tool.
pub(crate) static CACHE_NAMES: [(&str, CacheEvent); 16] = {
    use Cache::*;
    use CacheOp::*;
    use CacheResult::*;

    [
        ("L1-dcache-loads", CacheEvent::new(L1d, Read, Access)),
        ("L1-dcache-load-misses", CacheEvent::new(L1d, Read, Miss)),
        ("L1-dcache-store-misses", CacheEvent::new(L1d, Write, Miss)),
        (
            "L1-dcache-prefetches",
            CacheEvent::new(L1d, Prefetch, Access),
        ),
        ("L1-icache-loads", CacheEvent::new(L1i, Read, Access)),
        ("L1-icache-load-misses", CacheEvent::new(L1i, Read, Miss)),
        (
            "L1-icache-prefetches",
            CacheEvent::new(L1i, Prefetch, Access),
        ),
        ("LLC-loads", CacheEvent::new(Ll, Read, Access)),
        ("LLC-load-misses", CacheEvent::new(Ll, Read, Miss)),
        ("LLC-stores", CacheEvent::new(Ll, Write, Access)),
        ("LLC-store-misses", CacheEvent::new(Ll, Write, Miss)),
        ("LLC-prefetches", CacheEvent::new(Ll, Prefetch, Access)),
        ("dTLB-load-misses", CacheEvent::new(Dtlb, Read, Miss)),
        ("iTLB-load-misses", CacheEvent::new(Itlb, Read, Miss)),
        ("branch-loads", CacheEvent::new(Bpu, Read, Access)),
        ("branch-load-misses", CacheEvent::new(Bpu, Read, Miss)),
    ]
};

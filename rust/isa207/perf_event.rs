// SPDX-License-Identifier: GPL-2.0

//! perf's generic events: `PERF_TYPE_HARDWARE` and `PERF_TYPE_HW_CACHE`.
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
    /// The event that `attr.config` stands for; `None` if perf knows none with
    /// this number.
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
pub enum Cache {
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
pub enum CacheOp {
    /// Read
    Read,
    /// Write
    Write,
    /// Prefetch
    Prefetch,
}

/// The outcome of a cache event (`PERF_COUNT_HW_CACHE_RESULT_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheResult {
    /// All accesses
    Access,
    /// Misses only
    Miss,
}

/// An event of `PERF_TYPE_HW_CACHE` that makes sense on some machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheEvent {
    cache: Cache,
    op: CacheOp,
    result: CacheResult,
}

impl CacheEvent {
    /// Takes `attr.config` apart: cache in bits 0-7, access in bits 8-15,
    /// outcome in bits 16-23.
    ///
    /// `None` if a part is out of range or the combination is nonsense, as the
    /// prefetch of a branch is. perf calls both EINVAL.
    pub fn from_config(config: u64) -> Option<Self> {
        let [cache, op, result, rest @ ..] = config.to_le_bytes();
        if rest != [0; 5] {
            return None;
        }
        let cache = match cache {
            0 => Cache::L1d,
            1 => Cache::L1i,
            2 => Cache::Ll,
            3 => Cache::Dtlb,
            4 => Cache::Itlb,
            5 => Cache::Bpu,
            6 => Cache::Node,
            _ => return None,
        };
        let op = match op {
            0 => CacheOp::Read,
            1 => CacheOp::Write,
            2 => CacheOp::Prefetch,
            _ => return None,
        };
        let result = match result {
            0 => CacheResult::Access,
            1 => CacheResult::Miss,
            _ => return None,
        };
        let event = Self { cache, op, result };
        event.makes_sense().then_some(event)
    }

    /// For the tables of the CPUs.
    pub(super) const fn new(cache: Cache, op: CacheOp, result: CacheResult) -> Self {
        Self { cache, op, result }
    }

    /// Whether a machine can have the event at all.
    fn makes_sense(&self) -> bool {
        match (self.cache, self.op, self.result) {
            // Nothing ever stores to the instruction cache; what Linux counts
            // as its "write" is the line written into it.
            (Cache::L1i, CacheOp::Write, CacheResult::Miss) => false,
            // These are only looked up.
            (Cache::Dtlb | Cache::Itlb | Cache::Bpu, op, _) => op == CacheOp::Read,
            // A core's PMU sees no memory controller.
            (Cache::Node, _, _) => false,
            _ => true,
        }
    }
}

// SPDX-License-Identifier: GPL-2.0

//! The source of a sampled instruction's data: `union perf_mem_data_src`.
//!
//! C header: [`include/uapi/linux/perf_event.h`](srctree/include/uapi/linux/perf_event.h)

use super::bindings;

pub(crate) use bindings::{
    PERF_MEM_HOPS_0 as HOPS_0,
    PERF_MEM_HOPS_2 as HOPS_2,
    PERF_MEM_HOPS_3 as HOPS_3,
    PERF_MEM_LVLNUM_ANY_CACHE as LVLNUM_ANY_CACHE,
    PERF_MEM_LVLNUM_L1 as LVLNUM_L1,
    PERF_MEM_LVLNUM_L2 as LVLNUM_L2,
    PERF_MEM_LVLNUM_L3 as LVLNUM_L3,
    PERF_MEM_LVLNUM_NA as LVLNUM_NA,
    PERF_MEM_LVLNUM_PMEM as LVLNUM_PMEM,
    PERF_MEM_LVLNUM_RAM as LVLNUM_RAM,
    PERF_MEM_LVL_HIT as LVL_HIT,
    PERF_MEM_LVL_L1 as LVL_L1,
    PERF_MEM_LVL_L2 as LVL_L2,
    PERF_MEM_LVL_L3 as LVL_L3,
    PERF_MEM_LVL_LOC_RAM as LVL_LOC_RAM,
    PERF_MEM_LVL_MISS as LVL_MISS,
    PERF_MEM_LVL_NA as LVL_NA,
    PERF_MEM_LVL_REM_CCE1 as LVL_REM_CCE1,
    PERF_MEM_LVL_REM_CCE2 as LVL_REM_CCE2,
    PERF_MEM_LVL_REM_RAM1 as LVL_REM_RAM1,
    PERF_MEM_LVL_REM_RAM2 as LVL_REM_RAM2,
    PERF_MEM_OP_LOAD as OP_LOAD,
    PERF_MEM_OP_NA as OP_NA,
    PERF_MEM_OP_STORE as OP_STORE,
    PERF_MEM_SNOOP_HIT as SNOOP_HIT,
    PERF_MEM_SNOOP_HITM as SNOOP_HITM,
    PERF_MEM_SNOOP_NA as SNOOP_NA, //
};

/// The source of the data of a load or store. Each field takes the constants of this module whose
/// names begin with its name in capitals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemDataSrc {
    /// `mem_op`: the operation of the instruction on the data, `OP_*`.
    pub(crate) op: u32,
    /// `mem_lvl`: the level of the memory hierarchy and whether it had the data, `LVL_*` ORed.
    pub(crate) lvl: u32,
    /// `mem_lvl_num`: the level as a number, `LVLNUM_*`.
    pub(crate) lvlnum: u32,
    /// `mem_snoop`: the state in which another cache had the data, `SNOOP_*`.
    pub(crate) snoop: u32,
    /// `mem_lock`: the access is part of an atomic operation. If false, that is not known.
    pub(crate) locked: bool,
    /// `mem_hops`: the distance of the data, `HOPS_*`; 0 for this core's own caches and memory.
    pub(crate) hops: u32,
}

impl MemDataSrc {
    /// The source if nothing is known.
    pub(crate) const UNKNOWN: Self = Self {
        op: OP_NA,
        lvl: LVL_NA,
        lvlnum: LVLNUM_NA,
        snoop: SNOOP_NA,
        locked: false,
        hops: 0,
    };

    /// Returns the union's value, which is the same for both endiannesses.
    pub(super) fn bits(self) -> u64 {
        let remote = if self.hops == 0 {
            0
        } else {
            bindings::PERF_MEM_REMOTE_REMOTE
        };
        let lock = if self.locked {
            bindings::PERF_MEM_LOCK_LOCKED
        } else {
            bindings::PERF_MEM_LOCK_NA
        };
        let fields = [
            (self.op, bindings::PERF_MEM_OP_SHIFT),
            (self.lvl, bindings::PERF_MEM_LVL_SHIFT),
            (self.snoop, bindings::PERF_MEM_SNOOP_SHIFT),
            (lock, bindings::PERF_MEM_LOCK_SHIFT),
            (bindings::PERF_MEM_TLB_NA, bindings::PERF_MEM_TLB_SHIFT),
            (self.lvlnum, bindings::PERF_MEM_LVLNUM_SHIFT),
            (remote, bindings::PERF_MEM_REMOTE_SHIFT),
            (self.hops, bindings::PERF_MEM_HOPS_SHIFT),
        ];
        let or_field = |bits, (value, shift)| bits | u64::from(value) << shift;
        fields.into_iter().fold(0, or_field)
    }
}

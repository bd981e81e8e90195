// SPDX-License-Identifier: GPL-2.0

//! The sampled load or store: what perf calls the data source.
//!
//! SIER\[LDST\] holds the level that the access reached, SIER\[DATA_SRC\] the exact source of the
//! data. The comments name the events that count the same source: `LMEM` for `PM_DATA_FROM_LMEM`,
//! and so on.
//!
//! Differences from the in-tree driver:
//!
//! - Caches of other chips on POWER8 and POWER9: the in-tree driver calls all of them distant. The
//!   codes, like the events, distinguish remote ones (`RL2L3_SHR`, `RL2L3_MOD`) from distant ones
//!   (`DL2L3_SHR`, `DL2L3_MOD`).
//! - Memory attached to another chip by a separate link (`R_OC_ANY`, `D_OC_ANY` of POWER10) has a
//!   distance here.
//! - An access whose data source is invalid or reserved has no source here. The in-tree driver adds
//!   "not available" to what is known.
//!
//! Sources: the Performance Monitor Unit User's Guides of POWER8, POWER9 and POWER10;
//! `isa207_find_source()` and `isa207_get_mem_data_src()` in the kernel's
//! `arch/powerpc/perf/isa207-common.c`; the event lists in
//! `tools/perf/pmu-events/arch/powerpc/`.

use super::{
    super::{
        isa::Isa,
        models::model::CpuModel,
        registers::{
            MMCRA_SAMP_ELIG,
            SIER_DATA_SRC,
            SIER_LDST, //
        }, //
    },
    instruction::{
        InstructionType,
        SampleRegisters, //
    }, //
};

/// The operation of an instruction on memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryOperation {
    /// Load: `PERF_MEM_OP_LOAD`.
    Load,
    /// Store: `PERF_MEM_OP_STORE`.
    Store,
    /// Load or store of `larx` or `stcx.`; the hardware does not show which: `PERF_MEM_OP_NA`.
    Unknown,
}

/// A part of the memory hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLevel {
    /// First level cache: `LVL_HIT` with `LVL_L1`, `LVLNUM_L1`.
    L1,
    /// A level beyond the first level cache, otherwise unknown: `LVL_MISS` with `LVL_L1`.
    BeyondL1,
    /// Second level cache: `LVL_HIT` with `LVL_L2`, `LVLNUM_L2`.
    L2,
    /// Third level cache: `LVL_HIT` with `LVL_L3`, `LVLNUM_L3`.
    L3,
    /// Second or third level cache of another chip: `LVL_HIT` with `LVL_REM_CCE1` (remote) or
    /// `LVL_REM_CCE2` (distant), `LVLNUM_ANY_CACHE`.
    L2OrL3,
    /// Memory: `LVL_HIT` with `LVL_LOC_RAM`, `LVL_REM_RAM1` (remote) or `LVL_REM_RAM2` (distant),
    /// `LVLNUM_RAM`.
    Memory,
    /// Memory attached by a separate link (OpenCAPI): `LVL_HIT`, `LVLNUM_PMEM`.
    AttachedMemory,
}

/// The distance of a part of the memory hierarchy from the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// Part of the core or of its chip.
    Local,
    /// Another core's part on the same chip: `REMOTE_REMOTE`, `HOPS_0`.
    OtherCore,
    /// Part of another chip in the same group: `REMOTE_REMOTE`, `HOPS_2`.
    Remote,
    /// Part of a chip in another group: `REMOTE_REMOTE`, `HOPS_3`.
    Distant,
}

/// The source of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataSource {
    /// The part of the memory hierarchy.
    pub level: MemoryLevel,
    /// The distance of that part.
    pub distance: Distance,
    /// Whether a cache had modified the data: `SNOOP_HITM`. Otherwise `SNOOP_HIT`, except for
    /// [`MemoryLevel::BeyondL1`].
    pub modified: bool,
}

/// An access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryAccess {
    /// Load or store.
    pub operation: MemoryOperation,
    /// The instruction is `larx` or `stcx.`: `LOCK_LOCKED`.
    pub reservation: bool,
    /// The source of the data; `None` (`LVL_NA`) if the hardware does not report it.
    pub source: Option<DataSource>,
}

impl CpuModel {
    /// Returns the sampled instruction's access to memory; `None` if it does not access memory, or
    /// on a processor without a model of its own.
    pub fn memory_access(&self, regs: &SampleRegisters) -> Option<MemoryAccess> {
        /// Eligibility "larx only", in MMCRA while the sample was taken.
        const LARX: u64 = 5;
        /// Eligibility "stcx only".
        const STCX: u64 = 7;
        if !self.has_memory_fields {
            return None;
        }
        let kind = self.instruction_type(regs)?;
        let operation = match kind {
            InstructionType::Load => MemoryOperation::Load,
            InstructionType::Store => MemoryOperation::Store,
            InstructionType::Reservation => match MMCRA_SAMP_ELIG.get(regs.mmcra) {
                LARX => MemoryOperation::Load,
                STCX => MemoryOperation::Store,
                _ => MemoryOperation::Unknown,
            },
            _ => return None,
        };
        Some(MemoryAccess {
            operation,
            reservation: kind == InstructionType::Reservation,
            source: self.data_source(regs.sier),
        })
    }

    /// Returns the data source in `sier`; `None` if it is invalid or reserved.
    fn data_source(&self, sier: u64) -> Option<DataSource> {
        use Distance::*;
        use MemoryLevel::*;

        let v31 = self.isa >= Isa::V31;
        let (far, source) = (SIER_LDST.get(sier), SIER_DATA_SRC.get(sier));
        let (level, distance) = match (far, source) {
            (1, _) => (L1, Local),
            (2, _) => (L2, Local),
            (3, _) => (L3, Local),
            (4, source) if v31 => match source {
                // LMEM
                1 => (Memory, Local),
                // L_OC_CACHE, L_OC_MEM
                2 | 3 => (AttachedMemory, Local),
                // RMEM, R_OC_ANY
                4 => (Memory, Remote),
                5 => (AttachedMemory, Remote),
                // DMEM, D_OC_ANY
                6 => (Memory, Distant),
                7 => (AttachedMemory, Distant),
                _ => return None,
            },
            // The memory's cache (LL4) or the memory itself (LMEM).
            (4, 0 | 1) => (Memory, Local),
            (4, 2) => (Memory, Remote),
            (4, _) => (Memory, Distant),
            // L21. From v3.1 on, codes 0 and 1 are the nearer half of the chip, 4 and 5 the other
            // half.
            (5, 0 | 1) => (L2, OtherCore),
            (5, 4 | 5) if v31 => (L2, OtherCore),
            // L31. Before v3.1 this includes the L3 of a core that lets other cores use it.
            (5, 2..=5) => (L3, OtherCore),
            (5, 6 | 7) if v31 => (L3, OtherCore),
            // RL2L3
            (6, 0 | 1) => (L2OrL3, Remote),
            // DL2L3
            (6, 2 | 3) => (L2OrL3, Distant),
            (7, _) => (BeyondL1, Local),
            _ => return None,
        };
        Some(DataSource {
            level,
            distance,
            // Odd codes of other cores' and chips' caches mean modified data.
            modified: matches!(far, 5 | 6) && source & 1 == 1,
        })
    }
}

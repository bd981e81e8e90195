// SPDX-License-Identifier: GPL-2.0

//! The sampled load or store: what perf calls the data source.
//!
//! SIER\[LDST\] says how far the access went, SIER\[DATA_SRC\] where exactly the data came from.
//! The names in the comments are those of the events that count the same: `LMEM` for
//! `PM_DATA_FROM_LMEM`, and so on.
//!
//! Where this differs from the in-tree driver:
//!
//! - Caches of other chips on POWER8 and POWER9: the in-tree driver calls all of them distant. The
//!   codes, like the events, tell remote ones (`RL2L3_SHR`, `RL2L3_MOD`) from distant ones
//!   (`DL2L3_SHR`, `DL2L3_MOD`).
//! - Memory attached to another chip by a link of its own (`R_OC_ANY`, `D_OC_ANY` of POWER10) has
//!   a distance here.
//! - An access whose data source is not valid, or reserved, is an access without a source. The
//!   in-tree driver joins "not available" with what it knows.
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

/// What an instruction does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryOperation {
    /// Load: `PERF_MEM_OP_LOAD`.
    Load,
    /// Store: `PERF_MEM_OP_STORE`.
    Store,
    /// One of the two, `larx` or `stcx.`; the hardware does not say which: `PERF_MEM_OP_NA`.
    Unknown,
}

/// A part of the memory hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLevel {
    /// First level cache: `LVL_HIT` with `LVL_L1`, `LVLNUM_L1`.
    L1,
    /// Not the first level cache; no more is known: `LVL_MISS` with `LVL_L1`.
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
    /// Memory attached by a link of its own (OpenCAPI): `LVL_HIT`, `LVLNUM_PMEM`.
    AttachedMemory,
}

/// How far away a part of the memory hierarchy is from the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// The core's own, or its chip's.
    Local,
    /// Another core's on the same chip: `REMOTE_REMOTE`, `HOPS_0`.
    OtherCore,
    /// Another chip's in the same group: `REMOTE_REMOTE`, `HOPS_2`.
    Remote,
    /// A chip's in another group: `REMOTE_REMOTE`, `HOPS_3`.
    Distant,
}

/// Where data came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataSource {
    /// The part of the memory hierarchy.
    pub level: MemoryLevel,
    /// Whose it is.
    pub distance: Distance,
    /// A cache had it modified: `SNOOP_HITM`. If not, `SNOOP_HIT`, except for
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
    /// Where the data came from, if the hardware says so: `LVL_NA` if not.
    pub source: Option<DataSource>,
}

impl CpuModel {
    /// The sampled instruction's access to memory; `None` if it has none, or on a processor without
    /// a model of its own.
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

    /// The data source in `sier`; `None` if it is not valid or reserved.
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
            // The memory's own cache (LL4) or the memory (LMEM).
            (4, 0 | 1) => (Memory, Local),
            (4, 2) => (Memory, Remote),
            (4, _) => (Memory, Distant),
            // L21; from v3.1 on first those of the nearer half of the chip, then of the other.
            (5, 0 | 1) => (L2, OtherCore),
            (5, 4 | 5) if v31 => (L2, OtherCore),
            // L31; before v3.1 also the L3 of a core that leaves it to others.
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
            // Of the caches elsewhere, odd codes are the modified ones.
            modified: matches!(far, 5 | 6) && source & 1 == 1,
        })
    }
}

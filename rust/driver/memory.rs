// SPDX-License-Identifier: GPL-2.0

//! Translates the PMU's data about a sampled load or store into perf's encoding.

use crate::{
    isa207::{
        self,
        DataSource,
        Distance,
        MemoryAccess,
        MemoryLevel,
        MemoryOperation, //
    },
    perf::{
        memory,
        MemDataSrc,
        Weight,
        WeightType, //
    }, //
};

/// Returns the data source of a sample.
pub(super) fn data_source(access: &MemoryAccess) -> MemDataSrc {
    let op = match access.operation {
        MemoryOperation::Load => memory::OP_LOAD,
        MemoryOperation::Store => memory::OP_STORE,
        MemoryOperation::Unknown => memory::OP_NA,
    };
    MemDataSrc {
        op,
        locked: access.reservation,
        ..access.source.map_or(MemDataSrc::UNKNOWN, source)
    }
}

/// Returns the part of the memory hierarchy that the data came from.
fn source(source: DataSource) -> MemDataSrc {
    let (lvl, lvlnum) = match (source.level, source.distance) {
        (MemoryLevel::L1, _) => (memory::LVL_HIT | memory::LVL_L1, memory::LVLNUM_L1),
        (MemoryLevel::BeyondL1, _) => {
            return MemDataSrc {
                lvl: memory::LVL_MISS | memory::LVL_L1,
                ..MemDataSrc::UNKNOWN
            };
        }
        (MemoryLevel::L2, _) => (memory::LVL_HIT | memory::LVL_L2, memory::LVLNUM_L2),
        (MemoryLevel::L3, _) => (memory::LVL_HIT | memory::LVL_L3, memory::LVLNUM_L3),
        (MemoryLevel::L2OrL3, Distance::Distant) => (
            memory::LVL_HIT | memory::LVL_REM_CCE2,
            memory::LVLNUM_ANY_CACHE,
        ),
        (MemoryLevel::L2OrL3, _) => (
            memory::LVL_HIT | memory::LVL_REM_CCE1,
            memory::LVLNUM_ANY_CACHE,
        ),
        (MemoryLevel::Memory, Distance::Remote) => {
            (memory::LVL_HIT | memory::LVL_REM_RAM1, memory::LVLNUM_RAM)
        }
        (MemoryLevel::Memory, Distance::Distant) => {
            (memory::LVL_HIT | memory::LVL_REM_RAM2, memory::LVLNUM_RAM)
        }
        (MemoryLevel::Memory, _) => (memory::LVL_HIT | memory::LVL_LOC_RAM, memory::LVLNUM_RAM),
        (MemoryLevel::AttachedMemory, _) => (memory::LVL_HIT, memory::LVLNUM_PMEM),
    };
    MemDataSrc {
        lvl,
        lvlnum,
        snoop: if source.modified {
            memory::SNOOP_HITM
        } else {
            memory::SNOOP_HIT
        },
        hops: match source.distance {
            Distance::Local => 0,
            Distance::OtherCore => memory::HOPS_0,
            Distance::Remote => memory::HOPS_2,
            Distance::Distant => memory::HOPS_3,
        },
        ..MemDataSrc::UNKNOWN
    }
}

/// Returns the weight of a sample, in the form that the event asks for.
pub(super) fn weight(weight: isa207::Weight, form: WeightType) -> Weight {
    match form {
        WeightType::Full => Weight::Full(weight.latency.into()),
        WeightType::Struct => {
            Weight::Struct(weight.latency, weight.finish_cycles, weight.dispatch_cycles)
        }
    }
}

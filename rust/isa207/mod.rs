// SPDX-License-Identifier: GPL-2.0

//! The core PMU of POWER8 to Power12 as pure logic: the meaning of an event code, which events can
//! count together, on which counters, and with which values of the control registers (MMCR0 to
//! MMCR3, MMCRA); and the meaning of a sample's registers and of recorded branches.
//!
//! The layers, top down. Each imports only from those below it:
//!
//! - `solve/`: [`CpuModel::solve`] makes a [`Solution`] with [`Mmcr`] images from a group of
//!   [`Request`]s; [`CpuModel::assign`] does the same from precomputed [`Demand`]s. `validate.rs`
//!   refuses codes with reserved or contradictory bits; `constraint.rs` computes which parts of the
//!   PMU an event needs, `demand.rs` adds the event's part of the images to that; `alternatives.rs`
//!   lists the codes that count the same, and `search.rs` chooses among them; `mmcr.rs` makes the
//!   fields of the images, and `images.rs` combines them.
//! - `sample/`: type, latency and data source of a sampled instruction.
//! - `branch/`: entries of the BHRB, branch instructions, branch filters.
//! - `models/`: one file for each processor, with the codes of perf's events, alternatives and
//!   blacklists. [`CpuModel::from_pvr`] picks one.
//! - `request.rs`, `registers.rs`: an event as requested; the fields of the registers.
//! - `codes/`: event codes, the positions of their fields, perf's generic and cache events.
//! - `refusal.rs`, `pmc.rs`, `isa.rs`: why something cannot be counted; the counters; the
//!   generations.
//!
//! Invariants: nothing here depends on the kernel, allocates, recurses, blocks or panics; every
//! function returns in bounded time; every image comes from a solved group. Bits of registers are
//! numbered as in the Power ISA (bit 0 is the most significant), bits of event codes as in perf's
//! `format/` files (bit 0 is the least significant).
//!
//! Tests: `tests/` has cases worked out by hand, and compares random groups with a second
//! implementation of the rules (`make oracle` runs many of them); `fuzz/` lets libFuzzer search for
//! input that breaks the same rules (`make fuzz`); `make bench-solver` measures
//! [`CpuModel::solve`], and fails if it takes too many instructions.
//!
//! Abbreviations: PMC performance monitor counter; MMCR monitor mode control register; EBB
//! event-based branch; BHRB branch history rolling buffer; IFM instruction filtering mode (of the
//! BHRB); SIAR, SDAR sampled instruction and data address register; SIER sampled instruction event
//! register; FAB the SMP fabric.
//!
//! Sources: Power ISA v2.07B, v3.0B and v3.1 Book III, chapter "Performance Monitor Facility"; the
//! Performance Monitor Unit User's Guides of POWER8, POWER9 and POWER10;
//! `arch/powerpc/perf/{isa207-common,power8-pmu,power9-pmu,power10-pmu}.c` and
//! `Documentation/arch/powerpc/pmu-ebb.rst` in the kernel.

#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

mod branch;
mod codes;
mod isa;
mod models;
mod pmc;
mod refusal;
mod registers;
mod request;
mod sample;
mod solve;

pub use branch::{
    bhrb::{
        bhrb_records,
        BhrbEntry,
        BhrbRecord, //
    },
    decode::{
        fixed_target,
        Branch,
        BranchKind, //
    },
    filter::{
        BranchTypes,
        HardwareFilter, //
    }, //
};
pub use codes::{
    event_code::EventCode,
    field::Field,
    layout::{
        ConfigWord,
        FormatField, //
    },
    perf_event::{
        CacheEvent,
        GenericEvent, //
    }, //
};
pub use isa::Isa;
pub use models::model::{
    CpuModel,
    NamedEvent, //
};
pub use pmc::{
    Pmc,
    COUNTERS, //
};
pub use refusal::{
    Refusal,
    Selector, //
};
pub use request::{
    Exclude,
    Platform,
    Request, //
};
pub use sample::{
    instruction::{
        InstructionType,
        SampleRegisters,
        Weight, //
    },
    memory_access::{
        DataSource,
        Distance,
        MemoryAccess,
        MemoryLevel,
        MemoryOperation, //
    }, //
};
pub use solve::{
    assignment::{
        Assignment,
        Pmcs,
        Solution, //
    },
    demand::Demand,
    mmcr::Mmcr, //
};

// SPDX-License-Identifier: GPL-2.0

//! The core PMU of POWER8 to Power11 as pure logic: what an event code means,
//! which events can count together, on which counters, and which values the
//! control registers (MMCR0 to MMCR3, MMCRA) must get; and what a sample's registers
//! and the branches recorded with it say.
//!
//! The path of a group of events through the files:
//!
//! 1. [`CpuModel::from_pvr`] (`cpu.rs`) picks the description of the processor, one
//!    file each: `power8.rs`, `power9.rs`, `power10.rs`, `power11.rs`.
//! 2. `check.rs` refuses codes with reserved or contradictory bits, reading
//!    them with `event_code.rs` and `layout.rs`.
//! 3. `constraint.rs` says what one event demands of the PMU; `alternatives.rs`
//!    lists the other codes that count the same thing.
//! 4. `solver.rs` sees whether the demands go together, with `search.rs` looks
//!    for alternative codes if not, and gives each event a counter.
//! 5. `mmcr.rs` turns the result into register images.
//!
//! The way back, from the hardware to a sample: `bhrb.rs` reads the entries of the
//! BHRB, `branch.rs` decodes the branch instructions, `branch_filter.rs` chooses
//! among them and says which choice the hardware can make; `sampled.rs` and
//! `memory_access.rs` say what is known of the sampled instruction.
//!
//! Invariants: nothing here knows the kernel, allocates, recurses, blocks or
//! panics; every function returns in bounded time; every image comes from a
//! solved group. Bits of registers are named in IBM order (bit 0 is the most
//! significant) as in the documents, bits of event codes as in perf's `format/`
//! files (bit 0 is the least significant).
//!
//! How it is tested: `tests/` has cases worked out by hand and random groups
//! against a second set of rules (`make oracle` for many of them); `fuzz/` lets
//! libFuzzer look for input that breaks the same rules (`make fuzz`); `make bench`
//! measures what [`CpuModel::solve`] costs, and fails if it is more than it promises.
//!
//! Abbreviations: PMC performance monitor counter; MMCR monitor mode control
//! register; EBB event based branch; BHRB branch history rolling buffer; IFM
//! instruction filtering mode (of the BHRB); SIAR, SDAR sampled instruction and
//! data address register; FAB the SMP fabric.
//!
//! Sources: Power ISA v2.07B, v3.0B and v3.1 Book III, chapter "Performance
//! Monitor Facility"; the Performance Monitor Unit User's Guides of POWER8,
//! POWER9 and POWER10; `arch/powerpc/perf/{isa207-common,power8-pmu,power9-pmu,
//! power10-pmu}.c` and `Documentation/arch/powerpc/pmu-ebb.rst` in the kernel.

#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

mod alternatives;
mod bhrb;
mod branch;
mod branch_filter;
mod check;
mod constraint;
mod cpu;
mod event_code;
mod layout;
mod memory_access;
mod mmcr;
mod perf_event;
mod power10;
mod power11;
mod power8;
mod power9;
mod refusal;
mod request;
mod sampled;
mod search;
mod solver;
mod threshold;

pub use bhrb::{
    records,
    BhrbEntry,
    Record,
    BHRB_ENTRIES, //
};
pub use branch::{
    Branch,
    BranchKind, //
};
pub use branch_filter::{
    BranchTypes,
    HardwareFilter, //
};
pub use constraint::Selector;
pub use cpu::{
    CpuModel,
    Isa,
    NamedEvent, //
};
pub use event_code::EventCode;
pub use layout::{
    ConfigWord,
    Field,
    FormatField, //
};
pub use memory_access::{
    DataSource,
    Distance,
    MemoryAccess,
    MemoryLevel,
    MemoryOperation, //
};
pub use mmcr::Mmcr;
pub use perf_event::{
    Cache,
    CacheEvent,
    CacheOp,
    CacheResult,
    GenericEvent, //
};
pub use refusal::Refusal;
pub use request::{
    Assignment,
    Exclude,
    Machine,
    Pmc,
    Request,
    COUNTERS,
    MAX_EVENTS, //
};
pub use sampled::{
    InstructionType,
    SampleRegisters,
    Weight, //
};

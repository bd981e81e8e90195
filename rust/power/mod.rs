// SPDX-License-Identifier: GPL-2.0

//! The machine: special purpose registers (SPR), the PMU's interrupt, and the registers that the
//! kernel keeps for a task. Also the other parts of the kernel that the driver needs and that do
//! not belong to perf.
//!
//! Nothing here depends on perf. Abbreviations, as in the Power ISA (`regs.rs` lists those of
//! fields):
//!
//! | term  | meaning |
//! |-------|---------|
//! | BESCR | Branch Event Status and Control Register |
//! | BHRB  | Branch History Rolling Buffer: the last branches taken |
//! | EBB   | Event Based Branch: an alert that branches to a user-space handler |
//! | EBBHR | address of that handler; EBBRR: its return address |
//! | MMCR  | Monitor Mode Control Register (0 to 3, A) |
//! | PMC   | Performance Monitor Counter (1 to 6), 32 bits |
//! | PMI   | Performance Monitor Interrupt |
//! | SIAR  | Sampled Instruction Address Register; SDAR: of the data; SIER: its event |
//!
//! Power ISA, Book III, chapter "Performance Monitor Facility"; Book II, chapter "Event-Based
//! Branch Facility" (their numbers differ between versions).

pub(crate) mod access;
pub(crate) mod bhrb;
mod bindings;
pub(crate) mod cache;
pub(crate) mod callback;
pub(crate) mod exec;
pub(crate) mod extended_regs;
pub(crate) mod hotplug;
pub(crate) mod instructions;
pub(crate) mod interrupt;
pub(crate) mod log;
pub(crate) mod machine;
mod masked_pmis;
pub(crate) mod parameters;
pub(crate) mod pmu;
pub(crate) mod regs;
mod spr;
pub(crate) mod thread;

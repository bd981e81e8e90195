// SPDX-License-Identifier: GPL-2.0
//! Common parts of the EBB selftests: sessions with an EBB event, single alerts, jumps, neighbours,
//! and checks whether an instruction traps.
//!
//! Each program of this crate tests one behaviour of the contract between a program and the
//! kernel's PMU driver. Where tests count EBBs, they rely on an emulator that runs with `-icount`,
//! or on real hardware.

pub mod alert;
pub mod current;
pub mod each_instruction;
pub mod escape;
pub mod neighbour;
pub mod registers;
pub mod session;
pub mod tracee;
pub mod trap;

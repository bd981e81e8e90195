// SPDX-License-Identifier: GPL-2.0
//! What the EBB selftests share: sessions with an EBB event, single alerts, escapes,
//! neighbours, and a look at whether an instruction traps.
//!
//! Each program beside this library tests one behaviour of the contract between
//! a program and the kernel's PMU driver. Where EBBs are counted, the tests rely
//! on an emulator run with `-icount`, or on real hardware.

pub mod alert;
pub mod current;
pub mod each_instruction;
pub mod escape;
pub mod neighbour;
pub mod registers;
pub mod session;
pub mod tracee;
pub mod trap;

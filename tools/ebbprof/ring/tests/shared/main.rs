// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the memory that `ebbprof` shares with programs: its file, and whatever it may hold.

mod arbitrary;
mod memory;
mod sealed;

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the memory that `ebbprof` shares with programs: its file, and arbitrary contents.

mod arbitrary;
mod memory;
mod sealed;

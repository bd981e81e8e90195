// SPDX-License-Identifier: MIT OR Apache-2.0
//! `libebbprof.so`: samples the program that `ebbprof record` preloads it into.
//!
//! Its constructor finds the memory that `ebbprof` shares with it (`memory.rs`) and has the
//! thread sampled that runs it (`thread.rs`); `pthread_create` and fork's child do the same for
//! theirs. From then on only the EBB handler (`handler.rs`) runs. A program that finds no such
//! memory goes on as if this library were not there.

#![no_std]

extern crate alloc;

mod handler;
mod maps;
mod memory;
mod process;
// The same as libebb's: memory by malloc, and an abort for a panic.
#[path = "../../libebb/src/system.rs"]
mod system;
mod thread;

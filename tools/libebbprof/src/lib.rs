// SPDX-License-Identifier: MIT OR Apache-2.0
//! `libebbprof`: samples the program that `ebbprof record` preloads it into, or that is linked to
//! it.
//!
//! Its constructor finds the memory that `ebbprof` shares with it (`memory.rs`) and has the
//! thread sampled that runs it (`thread.rs`); `pthread_create` and fork's child do the same for
//! theirs. From then on only the EBB handler (`handler.rs`) runs. A program that finds no such
//! memory goes on as if this library were not there, until it begins a recording itself
//! (`api.rs`, `recording.rs`).

#![no_std]

extern crate alloc;

mod api;
#[cfg(not(feature = "wrap"))]
mod blocking;
mod branches;
mod c_library;
mod calls;
mod collector;
#[cfg(not(feature = "wrap"))]
mod cost;
mod descriptor;
mod handler;
mod maps;
mod memory;
#[cfg(not(feature = "wrap"))]
mod preload;
mod process;
mod recording;
mod sessions;
mod signals;
mod slot;
#[cfg(not(feature = "wrap"))]
mod stacks;
// The same as libebb's: memory by malloc, and an abort for a panic.
#[path = "../../libebb/src/system.rs"]
mod system;
mod thread;
mod unnoticed;

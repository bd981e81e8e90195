// SPDX-License-Identifier: MIT OR Apache-2.0
//! `libebbprof`: samples the program that `ebbprof record` preloads it into, or that is linked to
//! it.
//!
//! Its constructor finds the memory that `ebbprof` shares with it (`memory.rs`) and starts sampling
//! the initial thread (`thread.rs`). `pthread_create` and the child of a fork do the same for their
//! threads. From then on only the EBB handler (`handler.rs`) runs. If there is no such memory, the
//! program runs as if this library were not there, until it starts a recording itself
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
// Shared with libebb: an allocator that uses malloc(), and a panic handler that aborts.
#[path = "../../libebb/src/system.rs"]
mod system;
mod thread;
mod unnoticed;

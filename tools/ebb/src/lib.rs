// SPDX-License-Identifier: MIT OR Apache-2.0
//! Event Based Branches (EBB) for programs on 64-bit little-endian POWER Linux.
//!
//! A thread opens an EBB event, and from then on owns the performance monitor. It loads the
//! counters itself, and when one overflows the processor branches to a handler in the program,
//! without the kernel. Power ISA v2.07 and later describe the facility in Book II, chapter
//! "Event-Based Branch Facility", and the counters in Book III, chapter "Performance Monitor
//! Facility".
//!
//! A program for powerpc64le-unknown-linux-gnu only needs this crate as a dependency:
//! `ebb = { package = "ebb-pmu", version = "0.1" }`. A [`Session`] combines everything in one object:
//!
//! ```no_run
#![doc = include_str!("../examples/session.rs")]
//! ```
//!
//! [`install`] describes what a handler may do. On the level below a session, [`event()`] gives
//! access to all attributes of perf, and the functions use the facility step by step:
//!
//! ```no_run
#![doc = include_str!("../examples/steps.rs")]
//! ```

#![cfg_attr(not(feature = "std"), no_std)]

#[cfg(not(all(
    target_arch = "powerpc64",
    target_endian = "little",
    target_os = "linux"
)))]
compile_error!("ebb drives POWER hardware: build it for powerpc64le-unknown-linux-gnu");

mod attached;
pub mod bhrb;
pub mod config;
mod context;
mod control;
mod entry;
mod error;
#[cfg(feature = "std")]
mod event;
pub mod events;
mod fixup;
mod frame;
mod inject;
mod owner;
mod pausing;
mod period;
pub mod pmc;
mod progress;
mod reference;
pub mod reg;
mod reload;
mod rseq;
#[cfg(feature = "std")]
mod rules;
mod save;
mod session;
mod shared;
pub mod spr;
mod sys;
mod thread;
mod word;

#[doc(hidden)]
pub use attached::outlast_variables;
pub use context::EbbContext;
pub use context::Rearm;
pub use control::Handler;
pub use control::count;
pub use control::disable;
pub use control::enable;
pub use control::evicted;
pub use control::install;
pub use control::install_saving;
pub use control::resume;
pub use control::set_marked;
pub use control::spurious;
pub use control::supported;
pub use control::uninstall;
pub use error::Error;
#[cfg(feature = "std")]
pub use event::event;
#[cfg(feature = "std")]
pub use event::member;
#[doc(hidden)]
pub use fixup::replace_next;
pub use fixup::step_over;
pub use inject::branch_to_ebbhr;
pub use inject::inject;
pub use owner::Owner;
pub use owner::owner;
pub use pausing::State;
#[cfg(feature = "std")]
pub use perf_event::Attr;
#[cfg(feature = "std")]
pub use perf_event::Event;
#[cfg(feature = "std")]
pub use perf_event::disable_all;
#[cfg(feature = "std")]
pub use perf_event::enable_all;
pub use period::set_period;
pub use period::set_period_jitter;
pub use period::start;
pub use pmc::Pmc;
pub use save::Save;
#[doc(hidden)]
pub use session::Held;
pub use session::RawHandler;
pub use session::Session;
#[doc(hidden)]
pub use sys::process_mark;
#[doc(hidden)]
pub use thread::last_reason;
#[doc(hidden)]
pub use thread::set_last_reason;

// SPDX-License-Identifier: GPL-2.0
//! Event Based Branches (EBB) for programs on 64-bit little-endian POWER Linux.
//!
//! A thread opens an EBB event, and from then on owns the performance monitor:
//! it loads the counters itself, and when one overflows the processor branches
//! to a handler in the program, without the kernel. The facility is described in
//! Power ISA v2.07 and later, Book II, chapter "Event-Based Branch Facility", the
//! counters in Book III, chapter "Performance Monitor Facility".
//!
//! ```no_run
//! use ebb::{EbbContext, Pmc};
//!
//! fn handler(context: &mut EbbContext<'_>) {
//!     let _address = context.interrupted();
//! }
//!
//! fn main() -> Result<(), ebb::Error> {
//!     let event = ebb::event(ebb::config::CYCLES_PMC1).open()?;
//!     // SAFETY: `handler` only reads its context.
//!     unsafe { ebb::install(handler)? };
//!     event.enable()?;
//!     event.check_scheduled()?;
//!     ebb::enable()?;
//!     ebb::start(Pmc::Pmc1, 100_000)?;
//!     while ebb::count() < 1000 {
//!         core::hint::spin_loop();
//!     }
//!     ebb::disable();
//!     event.close();
//!     Ok(())
//! }
//! ```

#[cfg(not(all(
    target_arch = "powerpc64",
    target_endian = "little",
    target_os = "linux"
)))]
compile_error!("ebb drives POWER hardware: build it for powerpc64le-unknown-linux-gnu");

pub mod config;
mod entry;
mod error;
mod event;
mod handler;
pub mod pmc;
pub mod reg;
mod rules;
pub mod spr;

pub use error::Error;
pub use event::event;
pub use event::member;
pub use handler::EbbContext;
pub use handler::Handler;
pub use handler::Rearm;
pub use handler::count;
pub use handler::disable;
pub use handler::enable;
pub use handler::inject;
pub use handler::install;
pub use handler::set_period;
pub use handler::spurious;
pub use handler::start;
pub use handler::supported;
pub use perf_event::Attr;
pub use perf_event::Event;
pub use perf_event::disable_all;
pub use perf_event::enable_all;
pub use pmc::Pmc;

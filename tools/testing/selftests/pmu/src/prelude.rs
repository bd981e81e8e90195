// SPDX-License-Identifier: GPL-2.0
//! Names that nearly every test program uses.

pub use ktap::Failure;
pub use ktap::Outcome;
pub use ktap::check;
pub use ktap::cpu;
pub use ktap::process::Link;
pub use ktap::process::Peer;
pub use perf_event::Attr;
pub use perf_event::Event;
pub use perf_event::sys;

pub use crate::codes::*;
pub use crate::count_work;
pub use crate::errno_of;
pub use crate::expect_within;
pub use crate::machine;
pub use crate::machine::Model;
pub use crate::open_group;
pub use crate::ring::Record;
pub use crate::ring::Ring;
pub use crate::sample::Recorder;
pub use crate::sample::Sample;
pub use crate::sample::fewest_samples;
pub use crate::work;

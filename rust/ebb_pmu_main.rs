// SPDX-License-Identifier: GPL-2.0

//! `ebb_pmu.ko`: driver for the performance monitoring unit (PMU) of POWER processors, with Event
//! Based Branches for programs.
//!
//! The crate's folders, from the ground up:
//!
//! - [`isa207`]: event codes, counters and control registers as pure logic;
//! - [`power`]: the machine's registers and interrupt;
//! - [`perf`]: perf core's interface to PMU drivers, as safe Rust;
//! - [`driver`]: the callbacks of perf core.

mod driver;
pub mod isa207;
mod perf;
mod power;

use kernel::prelude::*;

module! {
    type: EbbPmu,
    name: "ebb_pmu",
    authors: ["The ebb-pmu developers"],
    description: "POWER performance monitoring unit with Event Based Branches",
    license: "GPL",
}

/// The loaded module: holds the PMU until it is unloaded.
struct EbbPmu {
    _takeover: driver::Takeover,
}

impl kernel::Module for EbbPmu {
    fn init(module: &'static ThisModule) -> Result<Self> {
        Ok(Self {
            _takeover: driver::Takeover::new(module)?,
        })
    }
}

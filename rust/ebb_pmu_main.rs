// SPDX-License-Identifier: GPL-2.0

//! `ebb_pmu.ko`: driver for the performance monitoring unit (PMU) of POWER processors, with Event
//! Based Branches for programs.
//!
//! The crate's folders, from the ground up:
//!
//! - [`isa207`]: pure logic of event codes, counters and control registers;
//! - [`power`]: the machine's registers and interrupt;
//! - [`perf`]: perf core's interface to PMU drivers, as safe Rust;
//! - [`driver`]: what perf core calls.

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

/// The loaded module: serves events until it is unloaded.
enum EbbPmu {
    /// All events, with the PMU taken over from the built-in driver.
    Full { _takeover: driver::Takeover },
    /// EBB events, beside the built-in driver, on a kernel that exports no more.
    Ebb { _interposed: driver::Interposed },
}

impl kernel::Module for EbbPmu {
    fn init(module: &'static ThisModule) -> Result<Self> {
        // `Kbuild` decides it. The compiler leaves out the code of the other mode.
        if cfg!(EBB_ONLY) {
            let _interposed = driver::Interposed::new(module)?;
            Ok(Self::Ebb { _interposed })
        } else {
            let _takeover = driver::Takeover::new(module)?;
            Ok(Self::Full { _takeover })
        }
    }
}

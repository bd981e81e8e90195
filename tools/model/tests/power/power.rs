// SPDX-License-Identifier: GPL-2.0

//! `rust/power` without what the host has no use for.

pub mod bindings;
pub mod spr;

#[path = "../../../../rust/power/bhrb.rs"]
pub mod bhrb;
#[path = "../../../../rust/power/machine.rs"]
pub mod machine;
#[path = "../../../../rust/power/pmu.rs"]
pub mod pmu;
#[path = "../../../../rust/power/regs.rs"]
pub mod regs;
#[path = "../../../../rust/power/thread.rs"]
pub mod thread;

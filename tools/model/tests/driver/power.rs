// SPDX-License-Identifier: GPL-2.0

//! `rust/power` with bindings and instructions for the host.

pub mod bindings;
pub mod spr;

#[path = "../../../../rust/power/access.rs"]
pub mod access;
#[path = "../../../../rust/power/bhrb.rs"]
pub mod bhrb;
#[path = "../../../../rust/power/cache.rs"]
pub mod cache;
#[path = "../../../../rust/power/callback.rs"]
pub mod callback;
#[path = "../../../../rust/power/exec.rs"]
pub mod exec;
#[path = "../../../../rust/power/extended_regs.rs"]
pub mod extended_regs;
#[path = "../../../../rust/power/hotplug.rs"]
pub mod hotplug;
#[path = "../../../../rust/power/instructions.rs"]
pub mod instructions;
#[path = "../../../../rust/power/interrupt.rs"]
pub mod interrupt;
#[path = "../../../../rust/power/log.rs"]
pub mod log;
#[path = "../../../../rust/power/machine.rs"]
pub mod machine;
#[path = "../../../../rust/power/masked_pmis.rs"]
pub mod masked_pmis;
#[path = "../../../../rust/power/parameters.rs"]
pub mod parameters;
#[path = "../../../../rust/power/pmu.rs"]
pub mod pmu;
#[path = "../../../../rust/power/regs.rs"]
pub mod regs;
#[path = "../../../../rust/power/thread.rs"]
pub mod thread;

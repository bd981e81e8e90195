// SPDX-License-Identifier: GPL-2.0

//! `rust/perf` with bindings for the host. It exports the same items of each module as `mod.rs`
//! there.

pub mod bindings;
mod fields;

#[path = "../../../../rust/perf/attr.rs"]
pub mod attr;
#[path = "../../../../rust/perf/branch.rs"]
pub mod branch;
#[path = "../../../../rust/perf/built_in.rs"]
pub mod built_in;
#[path = "../../../../rust/perf/cpu.rs"]
pub mod cpu;
#[path = "../../../../rust/perf/event.rs"]
pub mod event;
#[path = "../../../../rust/perf/flags.rs"]
pub mod flags;
#[path = "../../../../rust/perf/hw.rs"]
pub mod hw;
#[path = "../../../../rust/perf/instance.rs"]
pub mod instance;
#[path = "../../../../rust/perf/interpose.rs"]
pub mod interpose;
#[path = "../../../../rust/perf/local64.rs"]
pub mod local64;
#[path = "../../../../rust/perf/memory.rs"]
pub mod memory;
#[path = "../../../../rust/perf/ownership.rs"]
mod ownership;
#[path = "../../../../rust/perf/pmu.rs"]
pub mod pmu;
#[path = "../../../../rust/perf/registration.rs"]
pub mod registration;
#[path = "../../../../rust/perf/sample.rs"]
pub mod sample;
#[path = "../../../../rust/perf/slots.rs"]
pub mod slots;
#[path = "../../../../rust/perf/sysfs.rs"]
pub mod sysfs;
#[path = "../../../../rust/perf/vtable.rs"]
pub mod vtable;

pub(crate) use self::{
    attr::*, branch::*, built_in::*, cpu::*, event::*, flags::*, hw::*, instance::*, interpose::*,
    memory::*, pmu::*, registration::*, sample::*, slots::*, sysfs::*,
};

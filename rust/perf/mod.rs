// SPDX-License-Identifier: GPL-2.0

//! Safe abstraction over perf core's interface to PMU drivers.
//!
//! A driver implements [`Pmu`] and keeps a [`Registration`]; perf core then calls it back. What the
//! C interface leaves to convention is carried by types here:
//!
//! - which CPU a callback runs on, and that it cannot migrate: [`ThisCpu`], the only way to the
//!   driver's per-CPU state;
//! - how long a scheduled event may be looked at: [`Slots`], filled and emptied by this module
//!   around [`Pmu::add`] and [`Pmu::del`], so that a driver never keeps an event pointer itself;
//! - that a group may only be walked while an event is being opened: [`NewEvent`];
//! - that a table of callbacks stays in place while it is registered: [`Registration`].
//!
//! Nothing here knows a processor architecture.
//!
//! C header: [`include/linux/perf_event.h`](srctree/include/linux/perf_event.h)

mod attr;
mod bindings;
mod branch;
mod cpu;
mod event;
mod foreign;
mod hw;
pub(crate) mod memory;
mod pmu;
mod registration;
mod sample;
mod slots;
mod sysfs;
#[cfg(EBB_KUNIT)]
mod tests;
mod vtable;

pub(crate) use attr::Attr;
pub(crate) use attr::Kind;
pub(crate) use attr::WeightForm;
pub(crate) use branch::BranchEntry;
pub(crate) use branch::BranchFields;
pub(crate) use branch::BranchSample;
pub(crate) use branch::BranchStack;
pub(crate) use cpu::CpuContexts;
pub(crate) use cpu::ThisCpu;
pub(crate) use event::Event;
pub(crate) use event::NewEvent;
pub(crate) use foreign::Foreign;
#[cfg(EBB_KUNIT)]
pub(crate) use foreign::KernelEvent;
pub(crate) use foreign::SetAside;
pub(crate) use hw::Hw;
pub(crate) use hw::State;
pub(crate) use memory::MemorySource;
pub(crate) use pmu::Pmu;
pub(crate) use pmu::ScheduleFlags;
pub(crate) use pmu::Transaction;
pub(crate) use registration::Capabilities;
pub(crate) use registration::Registration;
pub(crate) use sample::account_interrupt;
pub(crate) use sample::sample_took;
pub(crate) use sample::Sample;
pub(crate) use sample::Weight;
use slots::Slots;
pub(crate) use sysfs::Folders;

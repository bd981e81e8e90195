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
mod flags;
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

pub(crate) use attr::{
    Attr,
    EventType,
    WeightType, //
};
pub(crate) use branch::{
    BranchEntry,
    BranchFields,
    BranchStack, //
};
pub(crate) use cpu::{
    CpuContexts,
    ThisCpu, //
};
pub(crate) use event::{
    Event,
    NewEvent, //
};
pub(crate) use flags::{
    BranchSample,
    BranchSampleType,
    Capabilities,
    Capability,
    EventFlag,
    EventFlags,
    SampleFormat,
    SampleType, //
};
pub(crate) use foreign::Foreign;
#[cfg(EBB_KUNIT)]
pub(crate) use foreign::KernelEvent;
pub(crate) use foreign::SetAside;
pub(crate) use hw::{
    CounterState,
    Hw, //
};
pub(crate) use memory::MemDataSrc;
pub(crate) use pmu::{
    Pmu,
    Transaction, //
};
pub(crate) use registration::Registration;
pub(crate) use sample::{
    account_interrupt,
    sample_event_took,
    Sample,
    Weight, //
};
use slots::Slots;
pub(crate) use sysfs::AttrGroups;

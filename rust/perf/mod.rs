// SPDX-License-Identifier: GPL-2.0

//! Safe abstraction over perf core's interface to PMU drivers.
//!
//! A driver implements [`Pmu`] and keeps a [`Registration`]; perf core then calls it back. Types
//! enforce rules that the C interface leaves to convention:
//!
//!
//! - a callback cannot migrate to another CPU: [`ThisCpu`], the only access to a CPU's events and
//!   to the driver's per-CPU state;
//! - a callback may interrupt another one, but it cannot reach the state of callbacks that take an
//!   [`ExclusiveCpu`];
//! - an event lives as long as it is on a CPU: [`Slots`], which this module fills and empties
//!   around [`Pmu::add`] and [`Pmu::del`], so that a driver keeps no pointer to an event;
//! - a driver changes its data in an event only with interrupts off, on the event's CPU: [`HwMut`];
//! - a group does not change while a member is being opened, [`NewEvent`], or while perf core adds
//!   an event of it, [`ExclusiveCpu::first_group`]; the same is true for the context of a task,
//!   [`ExclusiveCpu::task_events`];
//! - a table of callbacks must not move while it is registered: [`Registration`].
//!
//! Types do not express, here or elsewhere in the kernel crate, that callbacks that schedule events
//! must not sleep. Nothing here depends on the processor architecture, except for the way to read a
//! CPU's number on POWER (`cpu.rs`).
//!
//! C header: [`include/linux/perf_event.h`](srctree/include/linux/perf_event.h)

mod attr;
mod bindings;
mod branch;
mod built_in;
mod cpu;
mod event;
mod flags;
mod hw;
mod instance;
mod interpose;
mod local64;
pub(crate) mod memory;
mod ownership;
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
pub(crate) use built_in::BuiltInPmu;
#[cfg(EBB_KUNIT)]
pub(crate) use built_in::KernelEvent;
pub(crate) use built_in::UnregisteredPmu;
pub(crate) use cpu::{
    CpuContexts,
    ExclusiveCpu,
    IrqsOff,
    PmiCell,
    ThisCpu, //
};
pub(crate) use event::{
    Event,
    NewEvent,
    PerfEvent, //
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
pub(crate) use hw::{
    CounterState,
    Hw,
    HwMut, //
};
pub(crate) use interpose::Interposition;
pub(crate) use memory::MemDataSrc;
pub(crate) use pmu::{
    Pmu,
    SharedPmu,
    Transaction, //
};
pub(crate) use registration::Registration;
pub(crate) use sample::{
    sample_event_took,
    Sample,
    Weight, //
};
pub(crate) use slots::Slots;
pub(crate) use sysfs::AttrGroups;

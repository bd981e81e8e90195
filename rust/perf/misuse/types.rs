// SPDX-License-Identifier: GPL-2.0

//! Wrong uses that types refuse. Each has the compiler's error at the end of its line. See
//! `scripts/tests/test-misuse`.

use super::{
    cpu_state::{
        CpuContexts,
        ThisCpu, //
    },
    event::{
        Event,
        NewEvent, //
    },
    Driver, //
};
use crate::{
    perf::{
        AttrGroups,
        Capabilities,
        PmiCell,
        Registration, //
    },
    power::{
        callback::CallbackPermit,
        hotplug::Hotplug, //
    }, //
};
use core::cell::Cell;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Writes to another event, which may be on a CPU, while an event is being opened.
fn event_init(event: &NewEvent<'_>) {
    for member in event.group() {
        member.hw().set_idx(3); //~ E0599
        member.hw().set_prev_count(0); //~ E0599
        member.hw().update_userpage(); //~ E0599
        member.hw_mut().set_idx(3); //~ E0061
    }
}

/// Accesses state that an interrupted callback may be changing.
fn stop(this_cpu: &ThisCpu, event: &Event) {
    this_cpu.state().prompt_pmis.set(true); //~ E0599
    event.hw().set_idx(3); //~ E0599
}

fn is_send<T: Send>(_value: T) {}

fn is_sync<T: Sync>(_value: T) {}

/// Shares state with interrupts that can be torn, or a pointer to memory that may be freed.
fn shared_by_interrupts() {
    is_sync(Cell::new(0u64)); //~ E0277
    is_sync(PmiCell::new(core::ptr::null::<u64>())); //~ E0277
}

/// Registers a PMU in code that may leak the registration, although its callbacks are unloaded with
/// the module.
fn register(
    module: &'static ThisModule,
    attr_groups: AttrGroups,
    cpus: Arc<CpuContexts>,
    driver: Arc<Driver>,
) -> Result<Registration<Arc<Driver>>> {
    let none = Capabilities::empty();
    Registration::new_core(module, c"cpu", none, attr_groups, cpus, Ok(driver)) //~ E0133
}

/// Registers a callback in code that may leak the registration.
fn watch() -> Result<Hotplug> {
    Hotplug::watch(CallbackPermit::new()) //~ E0133
}

/// Sends the proof that interrupts are off to another thread.
fn sent(this_cpu: &ThisCpu) {
    is_send(this_cpu); //~ E0277
}

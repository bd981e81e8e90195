// SPDX-License-Identifier: GPL-2.0

//! Correct uses of `rust/perf` and `rust/power`, which differ as little as possible from the wrong
//! ones in this folder. See `scripts/tests/test-misuse`.

use super::{
    cpu_state::{
        local_pmu,
        CpuContexts,
        ExclusiveCpu,
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
        BranchStack,
        Capabilities,
        PmiCell,
        Registration,
        Sample, //
    },
    power::{
        callback::CallbackPermit,
        hotplug::Hotplug,
        instructions::Instructions,
        pmu::LocalPmu, //
    }, //
};
use core::cell::Cell;
use kernel::{
    prelude::*,
    sync::Arc, //
};

fn event_init(event: &NewEvent<'_>) {
    for member in event.group() {
        let _ = member.hw().prev_count();
    }
    let _ = event.hw().prev_count();
}

fn stop(this_cpu: &ThisCpu, event: &Event) {
    let hw = event.hw_mut(this_cpu.irqs_off());
    hw.set_idx(3);
    hw.set_prev_count(0);
    hw.update_userpage();
}

fn add(this_cpu: &ExclusiveCpu, event: &Event) {
    this_cpu.state().prompt_pmis.set(true);
    event.hw_mut(this_cpu.irqs_off()).set_idx(3);
}

fn is_send<T: Send>(_value: T) {}

fn is_sync<T: Sync>(_value: T) {}

fn shared_by_interrupts() {
    is_sync(PmiCell::new(0u64));
}

fn register(
    module: &'static ThisModule,
    attr_groups: AttrGroups,
    cpus: Arc<CpuContexts>,
    driver: Arc<Driver>,
) -> Result<Registration<Arc<Driver>>> {
    let none = Capabilities::empty();
    // SAFETY: There is none, but the function is never called.
    unsafe { Registration::new_core(module, c"cpu", none, attr_groups, cpus, Ok(driver)) }
}

fn watch() -> Result<Hotplug> {
    // SAFETY: There is none, but the function is never called.
    Hotplug::watch(unsafe { CallbackPermit::new() })
}

fn sent() {
    is_send(Cell::new(0u64));
}

fn last_of_slots(cpus: &CpuContexts) -> Option<u64> {
    // SAFETY: There is none, but the function is never called.
    unsafe { cpus.with_this_cpu(|this_cpu| Some(this_cpu.slots().get(0)?.id())) }
}

fn state(cpus: &CpuContexts) -> bool {
    // SAFETY: There is none, but the function is never called.
    unsafe { cpus.with_exclusive_cpu(|this_cpu| this_cpu.state().prompt_pmis.get()) }
}

fn freeze(cpus: &CpuContexts) {
    // SAFETY: There is none, but the function is never called.
    unsafe { cpus.with_this_cpu(|this_cpu| local_pmu(this_cpu.irqs_off()).clear_bhrb()) };
}

fn data(cpus: &CpuContexts, event: &Event) {
    // SAFETY: There is none, but the function is never called.
    unsafe { cpus.with_this_cpu(|this_cpu| event.hw_mut(this_cpu.irqs_off()).set_prev_count(0)) };
}

fn keep<'a>(this_cpu: &'a ThisCpu, kept: &mut Option<&'a Event>) {
    *kept = this_cpu.slots().get(0);
}

fn opened(local: &LocalPmu<'_>) -> Option<u32> {
    let mut kept = None;
    Instructions::open(local, |instructions| kept = instructions.at(0));
    kept
}

fn sample(event: &Event) -> Sample<'_> {
    let mut sample = Sample::new(event, 1, 0);
    sample.set_addr(0);
    sample
}

fn stacked<'a>(sample: &mut Sample<'a>, stack: &'a mut BranchStack) {
    sample.set_branch_stack(stack);
}

// SPDX-License-Identifier: GPL-2.0

//! Wrong uses that lifetimes refuse: each has the compiler's error at the end of its line. See
//! `scripts/tests/test-misuse`.

use super::{
    cpu_state::{
        local_pmu,
        CpuContexts,
        ThisCpu, //
    },
    event::Event, //
};
use crate::{
    perf::{
        BranchStack,
        Sample, //
    },
    power::{
        instructions::Instructions,
        pmu::LocalPmu, //
    }, //
};

/// An event is used after interrupts are on again, when it may be closed.
fn last_of_slots(cpus: &CpuContexts) {
    let mut kept = None;
    // SAFETY: None, the function is never called.
    unsafe { cpus.with_this_cpu(|this_cpu| kept = this_cpu.slots().get(0)) }; //~ E0521
    let _ = kept.map(|event| event.id());
}

/// So is the state of a CPU that one may have left.
fn state(cpus: &CpuContexts) {
    let mut kept = None;
    // SAFETY: As above.
    unsafe { cpus.with_exclusive_cpu(|this_cpu| kept = Some(this_cpu.state())) }; //~ E0521
    let _ = kept.map(|state| state.prompt.get());
}

/// So is what shows that they are off.
fn freeze(cpus: &CpuContexts) {
    let mut kept = None;
    // SAFETY: As above.
    unsafe { cpus.with_this_cpu(|this_cpu| kept = Some(local_pmu(this_cpu.irqs_off()))) }; //~ E0521
    let _ = kept.map(|local| local.clear_bhrb());
}

/// An event's data are changed after interrupts are on again, when the event may be on another CPU.
fn data(cpus: &CpuContexts, event: &Event) {
    let mut kept = None;
    // SAFETY: None, the function is never called.
    unsafe { cpus.with_this_cpu(|cpu| kept = Some(event.hw_mut(cpu.irqs_off()))) }; //~ E0521
    let _ = kept.map(|hw| hw.set_prev_count(0));
}

/// A callback keeps an event for later.
fn keep<'a>(this_cpu: &ThisCpu, kept: &mut Option<&'a Event>) {
    *kept = this_cpu.slots().get(0); //~ E0621
}

/// Instructions are read when the program's memory is closed again.
fn opened(local: &LocalPmu<'_>) {
    let mut kept = None;
    Instructions::open(local, |instructions| kept = Some(instructions)); //~ E0521
    let _ = kept.and_then(|instructions| instructions.at(0));
}

/// A sample refers to a stack of branches that is gone.
fn sample(event: &Event) -> Sample<'_> {
    let mut stack = BranchStack::new();
    let mut sample = Sample::new(event, 1, 0);
    sample.set_branch_stack(&mut stack);
    sample //~ E0515
}

/// Two samples have the same one.
fn stacked<'a>(one: &mut Sample<'a>, other: &mut Sample<'a>, stack: &'a mut BranchStack) {
    one.set_branch_stack(stack);
    other.set_branch_stack(stack); //~ E0499
}

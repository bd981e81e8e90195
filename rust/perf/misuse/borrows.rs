// SPDX-License-Identifier: GPL-2.0

//! Wrong uses that lifetimes refuse. Each has the compiler's error at the end of its line. See
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

/// Uses an event after interrupts are on again, when it may be closed.
fn last_of_slots(cpus: &CpuContexts) {
    let mut kept = None;
    // SAFETY: There is none, but the function is never called.
    unsafe { cpus.with_this_cpu(|this_cpu| kept = this_cpu.slots().get(0)) }; //~ E0521
    let _ = kept.map(|event| event.id());
}

/// Uses the state of a CPU that the code may have left.
fn state(cpus: &CpuContexts) {
    let mut kept = None;
    // SAFETY: There is none, but the function is never called.
    unsafe { cpus.with_exclusive_cpu(|this_cpu| kept = Some(this_cpu.state())) }; //~ E0521
    let _ = kept.map(|state| state.prompt_pmis.get());
}

/// Uses the proof that interrupts are off after they are on again.
fn freeze(cpus: &CpuContexts) {
    let mut kept = None;
    // SAFETY: There is none, but the function is never called.
    unsafe { cpus.with_this_cpu(|this_cpu| kept = Some(local_pmu(this_cpu.irqs_off()))) }; //~ E0521
    let _ = kept.map(|local| local.clear_bhrb());
}

/// Changes an event's data after interrupts are on again, when the event may be on another CPU.
fn data(cpus: &CpuContexts, event: &Event) {
    let mut kept = None;
    // SAFETY: There is none, but the function is never called.
    unsafe { cpus.with_this_cpu(|cpu| kept = Some(event.hw_mut(cpu.irqs_off()))) }; //~ E0521
    let _ = kept.map(|hw| hw.set_prev_count(0));
}

/// Keeps an event after the callback.
fn keep<'a>(this_cpu: &ThisCpu, kept: &mut Option<&'a Event>) {
    *kept = this_cpu.slots().get(0); //~ E0621
}

/// Reads instructions after the program's memory is closed again.
fn opened(local: &LocalPmu<'_>) {
    let mut kept = None;
    Instructions::open(local, |instructions| kept = Some(instructions)); //~ E0521
    let _ = kept.and_then(|instructions| instructions.at(0));
}

/// Returns a sample with a reference to a freed branch stack.
fn sample(event: &Event) -> Sample<'_> {
    let mut stack = BranchStack::new();
    let mut sample = Sample::new(event, 1, 0);
    sample.set_branch_stack(&mut stack);
    sample //~ E0515
}

/// Uses one branch stack in two samples.
fn stacked<'a>(one: &mut Sample<'a>, other: &mut Sample<'a>, stack: &'a mut BranchStack) {
    one.set_branch_stack(stack);
    other.set_branch_stack(stack); //~ E0499
}

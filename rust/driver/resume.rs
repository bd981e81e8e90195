// SPDX-License-Identifier: GPL-2.0

//! Events come back to the PMU that they left, while nobody has programmed it: its control
//! registers are theirs, and so may be what it counted. See `left.rs`.

use super::{
    branch,
    counters::{
        clear_counters,
        load_counter,
        place,
        reload_counter, //
    },
    cpu_state::{
        local_pmu,
        ExclusiveCpu, //
    },
    event::{
        self,
        counter, //
    },
    program::set_prompt,
    start::Start,
    Driver, //
};
use crate::{
    perf::Event,
    power::{
        exec::current_program,
        pmu, //
    }, //
};

impl Driver {
    /// As [`Driver::run`], for events that do not belong to a program and come back to the PMU that
    /// they left, which nobody has programmed since.
    #[inline(never)]
    pub(super) fn resume(&self, this_cpu: &ExclusiveCpu) {
        let (local, state) = (local_pmu(this_cpu.irqs_off()), this_cpu.state());
        let mut negative = false;
        for (event, index) in this_cpu.slots().iter().zip(state.left.counters()) {
            let value = if counter(event).is_some() {
                pmu::read_pmc(index)
            } else {
                let value = reload_counter(this_cpu, event, index);
                place(this_cpu, event, index);
                value
            };
            negative |= value >= pmu::NEGATIVE;
        }
        state.left.take_stale();
        state.ebb.set(false);
        state.set_unchanged();
        branch::clear_stale(this_cpu, &local);
        set_prompt(this_cpu, &local, self.prompt);
        self.start(this_cpu, &local, Start::Events { negative });
    }

    /// As [`Driver::resume`], for an EBB group.
    #[inline(never)]
    pub(super) fn resume_program(&self, this_cpu: &ExclusiveCpu) {
        let (local, state) = (local_pmu(this_cpu.irqs_off()), this_cpu.state());
        let (program, mark) = (current_program(), state.left.mark(this_cpu));
        let stays = |event: &Event| {
            counter(event).is_some() || event.hw().mark() == mark && event::is_of(event, program)
        };
        if !this_cpu.slots().iter().all(stays) {
            // The counters are not as its program left them.
            self.load_program(this_cpu);
            return;
        }
        for (event, index) in this_cpu.slots().iter().zip(state.left.counters()) {
            place(this_cpu, event, index);
        }
        state.left.take_stale();
        state.ebb.set(true);
        state.set_unchanged();
        branch::clear_bhrb(this_cpu, &local);
        set_prompt(this_cpu, &local, false);
        self.start_program(this_cpu);
    }

    /// As [`Driver::run`], for an EBB group for which the control registers are set already.
    #[inline(never)]
    fn load_program(&self, this_cpu: &ExclusiveCpu) {
        let (local, state) = (local_pmu(this_cpu.irqs_off()), this_cpu.state());
        self.clear_for_program(this_cpu, &local);
        // Another program, which had the same group, may have written the threshold counter.
        state.left.forget_mmcra();
        for (event, index) in this_cpu.slots().iter().zip(state.left.counters()) {
            if counter(event).is_none() {
                load_counter(this_cpu, event, index, true);
            }
        }
        // The program can read and write all.
        clear_counters(state.unused_counters.get());
        state.left.take_stale();
        state.ebb.set(true);
        state.set_unchanged();
        set_prompt(this_cpu, &local, false);
        self.start_program(this_cpu);
    }
}

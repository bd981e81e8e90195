// SPDX-License-Identifier: GPL-2.0

//! The driver: perf core's callbacks, on top of `isa207`, `perf` and `power`.
//!
//! The path of an event:
//!
//! 1. `event_init.rs` accepts or refuses it, by the rules of `ebb.rs` and `branch.rs`;
//! 2. `schedule.rs` adds it to a CPU if it can count there beside the others;
//! 3. `program.rs` writes the registers between `pmu_disable` and `pmu_enable`, `resume.rs`
//!    those that differ as events come back, `rest.rs` those that do as others leave, and `ebb.rs`
//!    those that belong to a program; `start.rs` starts the PMU;
//! 4. `count.rs` reads it; `interrupt.rs` handles its overflows, of which `sample.rs` makes samples
//!    and `branch_stack.rs` their branch stacks; `hold_back.rs` slows down events that overflow all
//!    the time.
//!
//! `takeover.rs` makes the driver the kernel's core PMU when the module is loaded.

mod branch;
mod branch_stack;
mod count;
mod counters;
mod cpu_state;
mod ebb;
mod emulator;
mod event;
mod event_init;
mod exec;
mod hold_back;
mod interrupt;
mod left;
mod memory;
mod program;
mod refusal;
mod requests;
mod rest;
mod resume;
mod sample;
mod sample_location;
mod schedule;
mod solved_groups;
mod start;
mod sysfs;
mod takeover;
#[cfg(EBB_KUNIT)]
mod tests;

pub(crate) use takeover::Takeover;

use crate::{
    isa207::{
        self,
        Assignment,
        CpuModel,
        Demand,
        Isa,
        Machine, //
    },
    perf::{
        self,
        Event,
        EventFlags,
        IrqsOff,
        NewEvent,
        Transaction, //
    },
    power::{
        callback::CallbackPermit,
        hotplug::Hotplug,
        interrupt::PmcReservation,
        machine,
        parameters,
        thread::RegisterSet, //
    }, //
};
use core::iter;
use cpu_state::{
    ExclusiveCpu,
    ExclusiveState,
    SharedState,
    ThisCpu, //
};
use emulator::Emulator;
use interrupt::PmiHandler;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use requests::Requests;
use solved_groups::{
    Solved,
    SolvedGroups, //
};

/// The driver, one for the machine.
#[pin_data]
pub(crate) struct Driver {
    /// The PMU that all CPUs have.
    model: &'static CpuModel,
    /// Its registers that are saved for a program.
    register_set: RegisterSet,
    /// What register images depend on beside the events.
    machine: Machine,
    /// Tells which CPUs came up.
    hotplug: Hotplug,
    /// The PMU's interrupt, reserved while events are open.
    #[pin]
    pmcs: PmcReservation<PmiHandler>,
    /// Handles PMIs.
    pmi_handler: Arc<PmiHandler>,
    /// Handlers of other interrupts let PMIs through.
    prompt: bool,
}

/// Returns the registers of a PMU of this model.
fn register_set(model: &CpuModel) -> RegisterSet {
    if model.isa() >= Isa::V31 {
        RegisterSet::V31
    } else {
        RegisterSet::V207
    }
}

impl Driver {
    /// The driver of a machine whose CPUs are of `model`.
    fn new(
        permit: CallbackPermit,
        model: &'static CpuModel,
        pmi_handler: Arc<PmiHandler>,
    ) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            model,
            register_set: register_set(model),
            machine: Machine {
                hypervisor_mode: machine::is_hypervisor(),
                strict_branch_filters: parameters::strict_filters(),
                without_bhrb: !machine::has_bhrb(),
            },
            hotplug: Hotplug::watch(permit)?,
            prompt: parameters::prompt().unwrap_or(pmi_handler.emulator.prompt_by_default()),
            pmcs <- PmcReservation::new(permit, pmi_handler.clone()),
            pmi_handler,
        }? Error)
    }

    /// The emulator that the machine may be.
    fn emulator(&self) -> &Emulator {
        &self.pmi_handler.emulator
    }

    /// Whether the PMU is that of ISA v3.1.
    fn is_v31(&self) -> bool {
        self.register_set == RegisterSet::V31
    }

    /// Whether the CPU's events and `new` can count together.
    #[cold]
    #[inline(never)] // `Driver::add` would save registers for it.
    fn fit(&self, this_cpu: &ExclusiveCpu, new: &Event) -> Result<(), isa207::Refusal> {
        let events = Iterator::chain(this_cpu.slots().iter(), iter::once(new));
        let len = this_cpu.slots().len() + 1;
        let solved_groups = &this_cpu.state().solved_groups;
        if solved_groups.find(len, events.clone()).is_some() {
            return Ok(());
        }
        let Err(why) = Demand::together(events.clone().map(event::demand)) else {
            return Ok(());
        };
        let assignment = self.assign_other_codes(solved_groups, events.clone(), why)?;
        this_cpu.state().store(len, events, assignment, false);
        Ok(())
    }

    /// Finds counters for the CPU's events, unless they are known, and the register images.
    #[inline(always)] // For `Driver::commit_txn`.
    fn solve(&self, this_cpu: &ExclusiveCpu) -> Result<Solved, isa207::Refusal> {
        let (slots, state) = (this_cpu.slots(), this_cpu.state());
        let find = || state.solved_groups.find(slots.len(), slots.iter());
        let find_alike = || state.left.find_alike(this_cpu);
        let solved = match state.solved.get().or_else(find).or_else(find_alike) {
            Some(solved) => solved,
            None => self.solve_anew(this_cpu)?,
        };
        state.solved.set(Some(solved));
        Ok(solved)
    }

    /// Finds counters for events that are none of the groups solved last.
    #[inline(never)]
    fn solve_anew(&self, this_cpu: &ExclusiveCpu) -> Result<Solved, isa207::Refusal> {
        let (events, state) = (this_cpu.slots().iter(), this_cpu.state());
        let (assignment, as_asked) = match self.model.assign(events.clone().map(event::demand)) {
            Ok(assignment) => (assignment, true),
            Err(why) => {
                let groups = &state.solved_groups;
                (self.assign_other_codes(groups, events.clone(), why)?, false)
            }
        };
        let solved = state.store(this_cpu.slots().len(), events, assignment, as_asked);
        solved.ok_or(isa207::Refusal::TooManyEvents)
    }

    /// Finds counters for events that cannot count together by the codes asked for. `why` is what
    /// keeps them from it.
    #[cold]
    fn assign_other_codes<'a>(
        &self,
        solved_groups: &SolvedGroups,
        events: impl Iterator<Item = &'a Event>,
        why: isa207::Refusal,
    ) -> Result<Assignment, isa207::Refusal> {
        let requests = Requests::new(events)?;
        if let Some(assignment) = solved_groups.find_searched(&requests) {
            return Ok(assignment);
        }
        let reqs = requests.as_slice();
        let assignment = *self.model.solve_by_other_codes(reqs, self.machine, why)?;
        solved_groups.store_searched(requests, assignment);
        Ok(assignment)
    }

    /// Finds counters for the CPU's events, which others left that they counted beside. This is not
    /// stored: as a group of their own the same events may be refused.
    fn assign_rest(&self, this_cpu: &ExclusiveCpu) -> Result<Assignment, isa207::Refusal> {
        let rest = Requests::new(this_cpu.slots().iter())?;
        Ok(*self.model.solve_rest(rest.as_slice(), self.machine)?)
    }
}

// The callbacks call `Driver::add()` and so on: `self.add()` would call the trait's method again.
#[vtable]
impl perf::Pmu for Arc<Driver> {
    type Shared = SharedState;
    type Exclusive = ExclusiveState;

    #[inline]
    fn event_init(&self, event: &NewEvent<'_>) -> Result {
        Driver::event_init(self, event)
    }

    #[inline]
    fn destroy(&self, _event: &Event) {
        self.pmcs.put();
    }

    #[inline]
    fn pmu_enable(&self, this_cpu: &ExclusiveCpu) {
        Driver::pmu_enable(self, this_cpu);
    }

    #[inline]
    fn pmu_disable(&self, this_cpu: &ExclusiveCpu) {
        Driver::pmu_disable(self, this_cpu);
    }

    #[inline]
    fn add(&self, this_cpu: &ExclusiveCpu, event: &Event, flags: EventFlags) -> Result {
        Driver::add(self, this_cpu, event, flags)
    }

    #[inline]
    fn del(&self, this_cpu: &ExclusiveCpu, event: &Event) {
        Driver::del(self, this_cpu, event);
    }

    #[inline]
    fn start(&self, this_cpu: &ThisCpu, event: &Event) {
        count::start(this_cpu, event);
    }

    #[inline]
    fn stop(&self, this_cpu: &ThisCpu, event: &Event) {
        count::stop(this_cpu, event);
    }

    #[inline]
    fn read(&self, irqs_off: &IrqsOff<'_>, event: &Event) {
        count::read(irqs_off, event);
    }

    #[inline]
    fn start_txn(&self, this_cpu: &ExclusiveCpu, txn: Transaction) {
        this_cpu.state().in_transaction.set(txn == Transaction::Add);
    }

    #[inline]
    fn commit_txn(&self, this_cpu: &ExclusiveCpu) -> Result {
        Driver::commit_txn(self, this_cpu)
    }

    #[inline]
    fn cancel_txn(&self, this_cpu: &ExclusiveCpu) {
        this_cpu.state().in_transaction.set(false);
    }

    #[inline]
    fn sched_task(&self, this_cpu: &ExclusiveCpu, sched_in: bool) {
        branch::sched_task(this_cpu, sched_in);
    }

    #[inline]
    fn event_idx(&self, event: &Event) -> u32 {
        event.hw().idx()
    }
}

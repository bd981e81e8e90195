// SPDX-License-Identifier: GPL-2.0

//! The driver: perf core's callbacks, on top of `isa207`, `perf` and `power`.
//!
//! The path of an event:
//!
//! 1. `event_init.rs` accepts or refuses the event, by the rules of `ebb.rs` and `branch.rs`;
//! 2. `schedule.rs` adds the event to a CPU if it can count there together with the CPU's other
//!    events, and computes the counters and control registers for all of them (the image,
//!    `image.rs`);
//! 3. `enable.rs` writes the registers when perf core enables the PMU;
//! 4. `count.rs` reads it; `interrupt.rs` handles its overflows, of which `sample.rs` makes samples
//!    and `branch_stack.rs` their branch stacks; `throttle.rs` lengthens the periods of events that
//!    overflow all the time.
//!
//! `takeover.rs` makes the driver the kernel's core PMU when the module is loaded (the `full`
//! mode). In the `ebb` mode the built-in driver keeps the PMU, and this driver serves EBB events
//! (`interposed.rs`).

mod branch;
mod branch_stack;
mod count;
mod cpu_state;
mod ebb;
mod emulator;
mod enable;
mod event;
mod event_init;
mod exec;
mod image;
mod interposed;
mod interrupt;
mod memory;
mod period;
mod pmi_time;
mod refusal;
mod requests;
mod sample;
mod sample_location;
mod schedule;
mod sysfs;
mod takeover;
#[cfg(EBB_KUNIT)]
mod tests;
mod throttle;

pub(crate) use interposed::Interposed;
pub(crate) use takeover::Takeover;

use crate::{
    isa207::{
        CpuModel,
        EventCode,
        Isa,
        Platform, //
    },
    perf::{
        self,
        Attr,
        EventFlags,
        EventType,
        IrqsOff,
        Transaction, //
    },
    power::{
        callback::CallbackPermit,
        hotplug::Hotplug,
        interrupt::PmcReservation,
        machine,
        parameters,
        pmu::RegisterSet, //
    }, //
};
use cpu_state::{
    ExclusiveCpu,
    ExclusiveState,
    SharedState,
    ThisCpu, //
};
use emulator::Emulator;
use event::{
    Event,
    EventData,
    NewEvent, //
};
use interrupt::PmiHandler;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The driver, one for the machine.
#[pin_data]
pub(crate) struct Driver {
    /// The model of the PMU, which is the same on all CPUs.
    model: &'static CpuModel,
    /// The PMU's registers that are saved for a program.
    register_set: RegisterSet,
    /// Platform properties that affect register images.
    platform: Platform,
    /// Reports which CPUs came up.
    hotplug: Hotplug,
    /// The PMU's interrupt, reserved while events are open.
    #[pin]
    pmcs: PmcReservation<PmiHandler>,
    /// Handles PMIs.
    pmi_handler: Arc<PmiHandler>,
    /// Whether the driver wants prompt PMIs: PMIs that interrupt handlers of other interrupts.
    wants_prompt_pmis: bool,
    /// Whether the built-in driver has reserved the PMU's interrupt, so that this driver need not.
    is_interposed: bool,
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
    /// Returns the driver for a machine whose CPUs are of `model`.
    fn new(
        permit: CallbackPermit,
        model: &'static CpuModel,
        pmi_handler: Arc<PmiHandler>,
        is_interposed: bool,
    ) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            model,
            register_set: register_set(model),
            platform: Platform {
                hypervisor_mode: machine::is_hypervisor(),
                strict_branch_filters: parameters::strict_filters(),
                without_bhrb: !machine::has_bhrb(),
            },
            hotplug: Hotplug::watch(permit)?,
            wants_prompt_pmis: parameters::prompt()
                .unwrap_or(pmi_handler.emulator.wants_prompt_pmis_by_default()),
            pmcs <- PmcReservation::new(permit, pmi_handler.clone()),
            pmi_handler,
            is_interposed,
        }? Error)
    }

    /// Reserves the PMU's interrupt for an event that is opened.
    fn reserve(&self) -> Result {
        if self.is_interposed {
            return Ok(());
        }
        self.pmcs.get()
    }

    /// Releases what [`Driver::reserve`] reserved.
    fn release(&self) {
        if !self.is_interposed {
            self.pmcs.put();
        }
    }

    /// Returns the workarounds for the emulator, if the machine is one.
    fn emulator(&self) -> &Emulator {
        &self.pmi_handler.emulator
    }

    /// Returns whether the PMU is that of ISA v3.1.
    fn is_v31(&self) -> bool {
        self.register_set == RegisterSet::V31
    }
}

// The callbacks call `Driver::add()` and so on: `self.add()` would call the trait's method again.
#[vtable]
impl perf::Pmu for Arc<Driver> {
    type Shared = SharedState;
    type Exclusive = ExclusiveState;
    type EventData = EventData;

    #[inline]
    fn event_init(&self, event: &NewEvent<'_>) -> Result<KBox<EventData>> {
        Driver::event_init(self, event)
    }

    #[inline]
    fn destroy(&self, _event: &Event) {
        self.release();
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

impl perf::SharedPmu for Arc<Driver> {
    fn wants(attr: &Attr) -> bool {
        attr.event_type() == EventType::Raw && EventCode(attr.config()).is_ebb()
    }

    fn acquired(&self, this_cpu: &ExclusiveCpu) {
        interposed::acquired(self, this_cpu);
    }

    fn released(&self, this_cpu: &ExclusiveCpu) {
        interposed::released(self, this_cpu);
    }

    fn takes_unused_pmus(&self) -> bool {
        // See `interposed::other_enabled`.
        self.platform.hypervisor_mode
    }

    fn other_enabled(&self, irqs_off: &IrqsOff<'_>) {
        interposed::other_enabled(self, irqs_off);
    }
}

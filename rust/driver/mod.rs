// SPDX-License-Identifier: GPL-2.0

//! What perf core calls: the PMU driver itself.
//!
//! The path of an event:
//!
//! 1. `open.rs` takes it or refuses it, with the EBB rules of `ebb.rs`;
//! 2. `schedule.rs` puts it on a CPU, if it can count there beside the others;
//! 3. `program.rs` writes what was decided to the PMU, between stopping and starting it;
//! 4. `count.rs` reads it, `interrupt.rs` deals with its overflows, of which `sample.rs` makes
//!    samples, and `branch.rs` their branch stacks.
//!
//! `takeover.rs` makes the driver the kernel's core PMU when the module is loaded.
//!
//! Per-CPU state changes only while the CPU's PMU is stopped, so plain `Cell`s do: no PMI can come
//! then, and should one that was under way come all the same, it looks at `stopped` and at nothing
//! else. PMIs do not nest.

mod alert;
mod branch;
mod count;
mod ebb;
mod interrupt;
mod memory;
mod open;
mod program;
mod refuse;
mod sample;
mod schedule;
mod sysfs;
mod takeover;
#[cfg(EBB_KUNIT)]
mod tests;

pub(crate) use takeover::Takeover;

use crate::{
    isa207::{
        Assignment,
        CpuModel,
        EventCode,
        Isa,
        Machine,
        Mmcr, //
    },
    perf::{
        self,
        Event,
        NewEvent,
        ScheduleFlags,
        ThisCpu,
        Transaction, //
    },
    power::{
        hotplug::Hotplug,
        interrupt::PmcReservation,
        machine,
        pmu::LocalPmu,
        thread::Registers,
        timer::Timers, //
    },
};
use core::cell::Cell;
use interrupt::PmInterrupt;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use schedule::Solved;

/// The driver, one for the machine.
#[pin_data]
pub(crate) struct Driver {
    /// What the processor's PMU can do.
    model: &'static CpuModel,
    /// What the register images depend on besides the events.
    machine: Machine,
    /// CPUs that come up.
    hotplug: Hotplug,
    /// The PMU's interrupt, which the first open event reserves.
    #[pin]
    pmcs: PmcReservation<PmInterrupt>,
    /// Timers, for what a PM interrupt cannot do at once; dropped after it.
    _timers: Timers<PmInterrupt>,
}

/// What the driver keeps for each CPU.
#[derive(Default)]
pub(crate) struct CpuState {
    /// The counters are stopped by [`perf::Pmu::pmu_disable`], and no PMI can come.
    stopped: Cell<bool>,
    /// This CPU's PMU has been turned on since the CPU came up.
    turned_on: Cell<bool>,
    /// Events are being added that are to be checked as a whole.
    in_transaction: Cell<bool>,
    /// Events came or went since the PMU was last programmed.
    changed: Cell<bool>,
    /// What the BHRB holds is not for the events that came since the PMU was last programmed.
    stale_branches: Cell<bool>,
    /// Where the events of the slots count, `None` when that is to be worked out.
    assignment: Cell<Option<Assignment>>,
    /// What was worked out before.
    solved: Solved,
    /// The control registers of the events that run.
    mmcr: Cell<Mmcr>,
    /// The events that run are EBB events.
    ebb: Cell<bool>,
    /// An alert that the program whose events run cannot take yet.
    alert: alert::Keeper,
}

/// This CPU, with the driver's state.
type Here<'a> = ThisCpu<'a, CpuState>;

/// This CPU's PMU.
fn local_pmu(_here: &Here<'_>) -> LocalPmu {
    // SAFETY: Interrupts are off as long as there is a `Here`, which the callers have for longer.
    unsafe { LocalPmu::new() }
}

/// Whether an event asks for EBBs.
fn is_ebb(event: &Event) -> bool {
    EventCode(event.hw().code()).is_ebb()
}

impl Driver {
    /// The driver for `model`.
    fn new(model: &'static CpuModel, interrupt: Arc<PmInterrupt>) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            model,
            machine: Machine {
                hypervisor_mode: machine::kernel_is_hypervisor(),
                strict_branch_filters: machine::strict_filters(),
            },
            hotplug: Hotplug::watch()?,
            _timers: Timers::new(interrupt.clone())?,
            pmcs <- PmcReservation::new(interrupt),
        }? Error)
    }

    /// Whether the PMU is that of ISA v3.1.
    fn is_v31(&self) -> bool {
        self.model.isa() >= Isa::V31
    }

    /// The registers that are saved for a program.
    fn registers(&self) -> Registers {
        if self.is_v31() {
            Registers::Extended
        } else {
            Registers::Base
        }
    }
}

#[vtable]
impl perf::Pmu for Arc<Driver> {
    type Cpu = CpuState;

    fn event_init(&self, event: &NewEvent<'_>) -> Result {
        self.open(event)
    }

    fn destroy(&self, _event: &Event) {
        self.pmcs.put();
    }

    fn pmu_enable(&self, cpu: &Here<'_>) {
        self.start_pmu(cpu);
    }

    fn pmu_disable(&self, cpu: &Here<'_>) {
        self.stop_pmu(cpu);
    }

    fn add(&self, cpu: &Here<'_>, event: &Event, flags: ScheduleFlags) -> Result {
        self.add_event(cpu, event, flags)
    }

    fn del(&self, cpu: &Here<'_>, event: &Event) {
        self.delete_event(cpu, event);
    }

    fn start(&self, cpu: &Here<'_>, event: &Event) {
        count::start(cpu, event);
    }

    fn stop(&self, cpu: &Here<'_>, event: &Event) {
        count::stop(cpu, event);
    }

    fn read(&self, _cpu: &Here<'_>, event: &Event) {
        count::read(event);
    }

    fn start_txn(&self, cpu: &Here<'_>, txn: Transaction) {
        cpu.in_transaction.set(txn == Transaction::Add);
    }

    fn commit_txn(&self, cpu: &Here<'_>) -> Result {
        self.commit(cpu)
    }

    fn cancel_txn(&self, cpu: &Here<'_>) {
        cpu.in_transaction.set(false);
    }

    fn sched_task(&self, cpu: &Here<'_>, sched_in: bool) {
        if sched_in {
            branch::sched_in(cpu);
        }
    }

    fn event_idx(&self, event: &Event) -> u32 {
        event.hw().idx()
    }
}

// SPDX-License-Identifier: GPL-2.0

//! The trait of a PMU driver.
//!
//! C header: [`include/linux/perf_event.h`](srctree/include/linux/perf_event.h), `struct pmu`

use super::{
    bindings,
    Attr,
    Event,
    EventFlags,
    ExclusiveCpu,
    IrqsOff,
    NewEvent,
    ThisCpu, //
};
use kernel::{
    build_error,
    error::VTABLE_DEFAULT_ERROR,
    prelude::*, //
};

/// What perf core opens a transaction for (`PERF_PMU_TXN_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transaction {
    /// `PERF_PMU_TXN_ADD`: it adds the events of a group, which are to be checked together when it
    /// commits.
    Add,
    /// `PERF_PMU_TXN_READ`: it reads the events of a group, with the PMU running.
    Read,
}

impl Transaction {
    pub(super) fn from_raw(flags: c_uint) -> Self {
        if flags & bindings::PERF_PMU_TXN_ADD != 0 {
            Self::Add
        } else {
            Self::Read
        }
    }
}

/// `Pmu::Shared` and `Pmu::Exclusive` of a driver, as callbacks that schedule events get them.
pub(crate) type Exclusive<T> =
    ExclusiveCpu<<T as Pmu>::Shared, <T as Pmu>::Exclusive, <T as Pmu>::EventData>;

/// `Pmu::Shared` of a driver, as all callbacks on a CPU get it.
pub(crate) type Shared<T> = ThisCpu<<T as Pmu>::Shared, <T as Pmu>::EventData>;

/// A PMU driver: the callbacks of `struct pmu`, under the names that perf core gives them.
///
/// # Contexts
///
/// [`event_init`] and [`destroy`] run in process context and may sleep. All other callbacks run
/// with interrupts off and must neither sleep nor allocate. perf core (`kernel/events/core.c`)
/// calls them like this:
///
/// | callbacks | this CPU's PMU | nested in another callback |
/// |---|---|---|
/// | [`pmu_disable`], [`pmu_enable`] | they stop and start it | no |
/// | [`add`], [`del`], [`sched_task`], transactions that add | stopped | no |
/// | [`start_txn`], [`commit_txn`] of a transaction that reads | running | no |
/// | [`stop`] | stopped or running | yes |
/// | [`start`] | stopped or running | yes |
/// | [`read`] | stopped or running | yes |
/// | [`event_idx`] | any, on any CPU | yes |
///
/// The scenarios behind the last four rows:
///
/// - The PMU's interrupt reports an overflow ([`Sample::overflow`]). perf core throttles the group
///   ([`stop`] for each member), gives an event with a frequency another period ([`stop`],
///   [`start`]), ends a limited event ([`stop`]), or puts the counts of the whole group into the
///   sample ([`read`] for each member).
/// - An event of another PMU in the group does the same: a software event, a tracepoint, a probe.
///   That may be inside a function that one of these callbacks calls. This PMU is not stopped then,
///   and its interrupt may come in the middle.
/// - The timer tick, or user space by `PERF_EVENT_IOC_PERIOD`, unthrottles a group for the sake of
///   an event of another PMU ([`start`]), with the same consequence.
/// - A BPF program reads an event (`bpf_perf_event_read_value()`) wherever it is attached
///   ([`read`]).
/// - User space maps an event's page ([`event_idx`]).
///
/// So [`start`] and [`stop`] get a [`ThisCpu`], by which they cannot reach state that other
/// callbacks may be in the middle of changing, and [`read`] only an [`IrqsOff`]. The others get an
/// [`ExclusiveCpu`].
///
/// perf core takes an event for one that is on a CPU from before [`add`] until after [`del`]. So
/// [`start`], [`stop`] and [`read`] may come for an event that has no counter yet, or none any
/// more.
///
/// [`Sample::overflow`]: super::Sample::overflow
/// [`add`]: Pmu::add
/// [`commit_txn`]: Pmu::commit_txn
/// [`del`]: Pmu::del
/// [`destroy`]: Pmu::destroy
/// [`event_idx`]: Pmu::event_idx
/// [`event_init`]: Pmu::event_init
/// [`pmu_disable`]: Pmu::pmu_disable
/// [`pmu_enable`]: Pmu::pmu_enable
/// [`read`]: Pmu::read
/// [`sched_task`]: Pmu::sched_task
/// [`start_txn`]: Pmu::start_txn
/// [`start`]: Pmu::start
/// [`stop`]: Pmu::stop
#[vtable]
pub(crate) trait Pmu: Send + Sync + Sized + 'static {
    /// What the driver keeps for each CPU and uses in any callback and in the PMU's interrupt.
    type Shared: Send + Sync;

    /// What the driver keeps for each CPU and uses in callbacks with an [`ExclusiveCpu`] only.
    type Exclusive: Send;

    /// The data that the driver keeps with each event ([`Event::data`]), in `pmu_private` of the
    /// event. Any CPU and the PMU's interrupt may use it at any time.
    type EventData: Send + Sync;

    /// Accepts an event that is being opened, and makes the driver's data for it, or refuses it:
    /// with `ENOENT` when it is not for this PMU, else with an errno that user space gets. With
    /// `ENOENT` leave the event as it was: perf core then offers it to other PMUs.
    fn event_init(&self, event: &NewEvent<'_, Self::EventData>) -> Result<KBox<Self::EventData>>;

    /// Gives back what [`Pmu::event_init`] took. Called once for each event that it accepted, when
    /// the event is closed, or revoked because the PMU is unregistered.
    fn destroy(&self, event: &Event<Self::EventData>);

    /// Starts this CPU's PMU with the events in [`ThisCpu::slots`].
    fn pmu_enable(&self, cpu: &Exclusive<Self>);

    /// Stops this CPU's PMU.
    fn pmu_disable(&self, cpu: &Exclusive<Self>);

    /// Adds an event to this CPU's PMU; [`ThisCpu::slots`] holds it after success. Fails with
    /// `EAGAIN` when it cannot count beside the others.
    fn add(
        &self,
        cpu: &Exclusive<Self>,
        event: &Event<Self::EventData>,
        flags: EventFlags,
    ) -> Result;

    /// Takes an event off this CPU's PMU and brings its count up to date.
    fn del(&self, cpu: &Exclusive<Self>, event: &Event<Self::EventData>);

    /// Starts the counter of an event on this CPU's PMU with what is left of its period
    /// ([`Hw::period_left`](super::Hw::period_left)). Does nothing when it runs.
    fn start(&self, cpu: &Shared<Self>, event: &Event<Self::EventData>);

    /// Stops the counter of an event on this CPU's PMU and brings its count up to date. Does
    /// nothing when it is stopped.
    fn stop(&self, cpu: &Shared<Self>, event: &Event<Self::EventData>);

    /// Brings the count of an event on this CPU's PMU up to date.
    fn read(&self, irqs_off: &IrqsOff<'_>, event: &Event<Self::EventData>);

    /// Opens a transaction.
    fn start_txn(&self, _cpu: &Exclusive<Self>, _txn: Transaction) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Ends a transaction. When it fails (`EAGAIN`: the events cannot count together) the
    /// transaction stays open until [`Pmu::cancel_txn`].
    fn commit_txn(&self, _cpu: &Exclusive<Self>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Gives up a transaction that adds. perf core deletes every event that was added in it.
    fn cancel_txn(&self, _cpu: &Exclusive<Self>) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Tells of a task switch on this CPU, which has an event with a branch stack on its PMU:
    /// `sched_in` says that the next task comes, whose branches are not those recorded so far;
    /// else the previous one goes.
    fn sched_task(&self, _cpu: &Exclusive<Self>, _sched_in: bool) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// The number of an event's counter that user space sees in the event's page, 0 for none. The
    /// event may be on another CPU.
    fn event_idx(&self, _event: &Event<Self::EventData>) -> u32 {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// A PMU driver that can serve some events of a PMU that another driver has registered
/// ([`Interposition`](super::Interposition)). The other driver serves the rest. Events of both are
/// never on the PMU of a CPU at a time.
///
/// perf core calls [`start`], [`stop`], [`read`], [`sched_task`] and [`event_idx`] of the other
/// driver for all events. That must have the effect that the ones of this driver have: for the
/// events that it serves, they depend on no more than `struct hw_perf_event`.
///
/// [`event_idx`]: Pmu::event_idx
/// [`read`]: Pmu::read
/// [`sched_task`]: Pmu::sched_task
/// [`start`]: Pmu::start
/// [`stop`]: Pmu::stop
pub(crate) trait SharedPmu: Pmu {
    /// Whether an event with these attributes, which leads a group, is one that this driver
    /// serves. The members of its group are too.
    fn wants(attr: &Attr) -> bool;

    /// The PMU of this CPU is this driver's from now on. It is frozen, and its registers hold
    /// anything.
    fn acquired(&self, cpu: &Exclusive<Self>);

    /// The PMU of this CPU is the other driver's from now on. It is frozen, and has no event.
    fn released(&self, cpu: &Exclusive<Self>);
}

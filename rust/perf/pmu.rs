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

/// The purpose of a transaction (`PERF_PMU_TXN_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transaction {
    /// `PERF_PMU_TXN_ADD`: it adds the events of a group, which are checked together when it
    /// commits.
    Add,
    /// `PERF_PMU_TXN_READ`: it reads the events of a group while the PMU runs.
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

/// `Pmu::Shared` and `Pmu::Exclusive` of a driver, for callbacks that schedule events.
pub(crate) type Exclusive<T> =
    ExclusiveCpu<<T as Pmu>::Shared, <T as Pmu>::Exclusive, <T as Pmu>::EventData>;

/// `Pmu::Shared` of a driver, for all callbacks on a CPU.
pub(crate) type Shared<T> = ThisCpu<<T as Pmu>::Shared, <T as Pmu>::EventData>;

/// A PMU driver: the callbacks of `struct pmu`, with the names that perf core gives them.
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
/// These cases explain the last four rows:
///
///
/// - The PMU's interrupt reports an overflow ([`Sample::overflow`]). perf core throttles the group
///   ([`stop`] for each member), gives an event with a frequency a different period ([`stop`],
///   [`start`]), ends a limited event ([`stop`]), or puts the counts of the whole group into the
///   sample ([`read`] for each member).
/// - An event of another PMU in the group causes the same calls: a software event, a tracepoint, a
///   probe. That may be inside a function that one of these callbacks calls. This PMU is not
///   stopped then, and its interrupt may occur in the middle.
/// - The timer tick, or user space through `PERF_EVENT_IOC_PERIOD`, unthrottles a group because of
///   an event of another PMU ([`start`]), with the same consequence.
/// - A BPF program reads an event (`bpf_perf_event_read_value()`) wherever it is attached
///   ([`read`]).
/// - User space maps an event's page ([`event_idx`]).
///
/// So [`start`] and [`stop`] get a [`ThisCpu`], which gives no access to state that other callbacks
/// may be changing, and [`read`] gets only an [`IrqsOff`]. The others get an [`ExclusiveCpu`].
///
/// perf core treats an event as being on a CPU from before [`add`] until after [`del`]. So
/// [`start`], [`stop`] and [`read`] may be called for an event that has no counter yet, or no
/// counter any more.
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
    /// The driver's per-CPU state that any callback and the PMU's interrupt may use.
    type Shared: Send + Sync;

    /// The driver's per-CPU state that only callbacks with an [`ExclusiveCpu`] use.
    type Exclusive: Send;

    /// The driver's data of each event ([`Event::data`]), in the event's `pmu_private`. Any CPU and
    /// the PMU's interrupt may use it at any time.
    type EventData: Send + Sync;

    /// Accepts a new event and makes the driver's data for it, or refuses it: with `ENOENT` if it
    /// is not for this PMU, otherwise with an errno that user space gets. With `ENOENT` the event
    /// must be unchanged, because perf core then offers it to other PMUs.
    fn event_init(&self, event: &NewEvent<'_, Self::EventData>) -> Result<KBox<Self::EventData>>;

    /// Releases the resources that [`Pmu::event_init`] acquired. Called once for each event that it
    /// accepted, when the event is closed, or when it is revoked because the PMU is unregistered.
    fn destroy(&self, event: &Event<Self::EventData>);

    /// Starts this CPU's PMU with the events in [`ThisCpu::slots`].
    fn pmu_enable(&self, cpu: &Exclusive<Self>);

    /// Stops this CPU's PMU.
    fn pmu_disable(&self, cpu: &Exclusive<Self>);

    /// Adds an event to this CPU's PMU; [`ThisCpu::slots`] contains it after success. Fails with
    /// `EAGAIN` if it cannot count together with the others.
    fn add(
        &self,
        cpu: &Exclusive<Self>,
        event: &Event<Self::EventData>,
        flags: EventFlags,
    ) -> Result;

    /// Removes an event from this CPU's PMU and updates its count.
    fn del(&self, cpu: &Exclusive<Self>, event: &Event<Self::EventData>);

    /// Starts the counter of an event on this CPU's PMU with the remaining period
    /// ([`Hw::period_left`](super::Hw::period_left)). Does nothing if the counter runs.
    fn start(&self, cpu: &Shared<Self>, event: &Event<Self::EventData>);

    /// Stops the counter of an event on this CPU's PMU and updates the event's count. Does nothing
    /// if the counter is stopped.
    fn stop(&self, cpu: &Shared<Self>, event: &Event<Self::EventData>);

    /// Updates the count of an event on this CPU's PMU.
    fn read(&self, irqs_off: &IrqsOff<'_>, event: &Event<Self::EventData>);

    /// Opens a transaction.
    fn start_txn(&self, _cpu: &Exclusive<Self>, _txn: Transaction) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Ends a transaction. If this fails (`EAGAIN`: the events cannot count together), the
    /// transaction stays open until [`Pmu::cancel_txn`].
    fn commit_txn(&self, _cpu: &Exclusive<Self>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Cancels a transaction that adds. perf core deletes every event that was added in it.
    fn cancel_txn(&self, _cpu: &Exclusive<Self>) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Handles a task switch on this CPU, whose PMU has an event with a branch stack. With
    /// `sched_in` the next task is scheduled in, and the branches recorded so far are not its own;
    /// otherwise the previous task is scheduled out.
    fn sched_task(&self, _cpu: &Exclusive<Self>, _sched_in: bool) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Returns the number of an event's counter that user space sees in the event's page; 0 for
    /// none. The event may be on another CPU.
    fn event_idx(&self, _event: &Event<Self::EventData>) -> u32 {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// A PMU driver that can serve some events of a PMU that another driver has registered
/// ([`Interposition`](super::Interposition)). The other driver serves the other events. The PMU of
/// a CPU never has events of both drivers at the same time.
///
/// perf core calls [`start`], [`stop`], [`read`], [`sched_task`] and [`event_idx`] of the other
/// driver for all events. For the events of this driver they must have the same effect as its own
/// callbacks: they may depend only on `struct hw_perf_event`.
///
/// [`event_idx`]: Pmu::event_idx
/// [`read`]: Pmu::read
/// [`sched_task`]: Pmu::sched_task
/// [`start`]: Pmu::start
/// [`stop`]: Pmu::stop
pub(crate) trait SharedPmu: Pmu {
    /// Returns whether this driver serves a group leader with these attributes. It then serves the
    /// members of the group, too.
    fn wants(attr: &Attr) -> bool;

    /// Takes over the PMU of this CPU. It has no event, and its registers may hold any values.
    fn acquired(&self, cpu: &Exclusive<Self>);

    /// Leaves the PMU of this CPU to the other driver. The PMU is frozen, and has no event.
    fn released(&self, cpu: &Exclusive<Self>);

    /// Returns whether this driver takes the PMUs without events when it is interposed, and when a
    /// CPU comes up. Otherwise it takes each with its first event there.
    fn takes_unused_pmus(&self) -> bool;

    /// The other driver has enabled the PMU of this CPU, or has left it disabled because it has no
    /// events there.
    fn other_enabled(&self, irqs_off: &IrqsOff<'_>);
}

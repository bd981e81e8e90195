// SPDX-License-Identifier: GPL-2.0

//! The trait of a PMU driver.
//!
//! C header: [`include/linux/perf_event.h`](srctree/include/linux/perf_event.h), `struct pmu`

use super::{
    bindings,
    Event,
    EventFlags,
    NewEvent,
    ThisCpu, //
};
use kernel::{
    build_error,
    error::VTABLE_DEFAULT_ERROR,
    prelude::*, //
};

/// What a transaction is for (`PERF_PMU_TXN_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transaction {
    /// `PERF_PMU_TXN_ADD`: it adds the events of a group, which are to be checked together when it
    /// commits.
    Add,
    /// `PERF_PMU_TXN_READ`: it reads the events of a group.
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

/// A driver for a PMU.
///
/// perf core calls [`event_init`] and [`destroy`] in process context; everything else runs with
/// interrupts off on the CPU whose PMU it is about and must neither sleep nor allocate. [`add`],
/// [`del`] and transactions come between [`pmu_disable`] and [`pmu_enable`], and so do [`start`] and
/// [`stop`] with two exceptions: [`stop`] comes out of
/// [`Sample::overflow`](super::Sample::overflow) in the PMU's interrupt; and both
/// come while the PMU runs, and may be interrupted by it, if a group with an event of another PMU is
/// throttled, or no longer is, for the sake of that event.
///
/// [`event_init`]: Pmu::event_init
/// [`destroy`]: Pmu::destroy
/// [`add`]: Pmu::add
/// [`del`]: Pmu::del
/// [`start`]: Pmu::start
/// [`stop`]: Pmu::stop
/// [`pmu_enable`]: Pmu::pmu_enable
/// [`pmu_disable`]: Pmu::pmu_disable
#[vtable]
pub(crate) trait Pmu: Send + Sync + Sized + 'static {
    /// The driver's per-CPU state.
    type Cpu: Send;

    /// Takes an event that is being opened, or refuses it: `ENOENT` when it is not for this PMU,
    /// another error when it is but cannot be had.
    fn event_init(&self, event: &NewEvent<'_>) -> Result;

    /// Gives back what [`Pmu::event_init`] took. Called once for each event that it accepted.
    fn destroy(&self, event: &Event);

    /// Lets the counters of this CPU run.
    fn pmu_enable(&self, cpu: &ThisCpu<'_, Self::Cpu>);

    /// Stops the counters of this CPU.
    fn pmu_disable(&self, cpu: &ThisCpu<'_, Self::Cpu>);

    /// Adds an event to this CPU's PMU; [`ThisCpu::slots`] holds it after success. Fails with
    /// `EAGAIN` when it does not fit beside the others.
    fn add(&self, cpu: &ThisCpu<'_, Self::Cpu>, event: &Event, flags: EventFlags) -> Result;

    /// Takes an event off this CPU's PMU, its count brought up to date.
    fn del(&self, cpu: &ThisCpu<'_, Self::Cpu>, event: &Event);

    /// Starts an event's counter with what is left of its period; 0 is left of a new one.
    fn start(&self, cpu: &ThisCpu<'_, Self::Cpu>, event: &Event);

    /// Stops an event's counter, its count brought up to date.
    fn stop(&self, cpu: &ThisCpu<'_, Self::Cpu>, event: &Event);

    /// Brings an event's count up to date. The counters may run, and the PMU's interrupt come.
    fn read(&self, cpu: &ThisCpu<'_, Self::Cpu>, event: &Event);

    /// Begins a transaction.
    fn start_txn(&self, _cpu: &ThisCpu<'_, Self::Cpu>, _txn: Transaction) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Ends a transaction. With an error (`EAGAIN`) the transaction goes on until
    /// [`Pmu::cancel_txn`].
    fn commit_txn(&self, _cpu: &ThisCpu<'_, Self::Cpu>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Gives a transaction up. Every event added in it has been or will be deleted.
    fn cancel_txn(&self, _cpu: &ThisCpu<'_, Self::Cpu>) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// A task switch on this CPU, on whose stopped PMU there is an event with a branch stack: the
    /// next task comes (`sched_in`), and the branches recorded so far are not its; or the last one
    /// goes.
    fn sched_task(&self, _cpu: &ThisCpu<'_, Self::Cpu>, _sched_in: bool) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// The number that user space is shown for an event's counter, 0 for none. Called anywhere.
    fn event_idx(&self, _event: &Event) -> u32 {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

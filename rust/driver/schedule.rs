// SPDX-License-Identifier: GPL-2.0

//! Adding events to a CPU's PMU and deleting them, while it is disabled.
//!
//! perf core adds the events of a group in a transaction: [`Driver::add`] only collects them, and
//! [`Driver::commit_txn`] finds counters for all events of the CPU, which `pmu_enable` programs. A
//! transaction that is cancelled needs no undoing: perf core deletes its events again, and what was
//! found for them stays true.

use super::{
    branch,
    count,
    cpu_state::{
        ExclusiveCpu, //
    },
    event,
    Driver, //
};
use crate::{
    isa207::COUNTERS,
    perf::{
        CounterState,
        Event,
        EventFlag,
        EventFlags, //
    }, //
};
use kernel::prelude::*;

impl Driver {
    /// See [`crate::perf::Pmu::add`].
    #[inline]
    pub(super) fn add(&self, this_cpu: &ExclusiveCpu, event: &Event, flags: EventFlags) -> Result {
        if this_cpu.slots().len() >= COUNTERS {
            return Err(EAGAIN);
        }
        // perf core adds events only in transactions today, but its interface allows others.
        if !this_cpu.state().in_transaction.get() {
            self.fit(this_cpu, event).map_err(|_| EAGAIN)?;
        }
        this_cpu.state().set_changed();
        this_cpu.state().add_unplaced(1);
        branch::event_added(this_cpu, event);

        let starts = flags.contains(EventFlag::Start) && !event::counts_nothing(event);
        let state = if starts {
            CounterState::Running
        } else {
            CounterState::Stopped
        };
        event.hw_mut(this_cpu.irqs_off()).set_state(state);
        Ok(())
    }

    /// See [`crate::perf::Pmu::del`].
    #[inline]
    pub(super) fn del(&self, this_cpu: &ExclusiveCpu, event: &Event) {
        let hw = event.hw_mut(this_cpu.irqs_off());
        if let Some(index) = event::counter(event) {
            count::collect(this_cpu.irqs_off(), event, index);
            // Before anything is written to the counter, see `unload_counter`.
            hw.set_idx(0);
            this_cpu.state().left.leave(this_cpu, event, index);
        } else {
            this_cpu.state().add_unplaced(-1);
        }
        hw.update_userpage();
        this_cpu.state().set_changed();
    }

    /// See [`crate::perf::Pmu::commit_txn`].
    #[inline]
    pub(super) fn commit_txn(&self, this_cpu: &ExclusiveCpu) -> Result {
        if this_cpu.state().in_transaction.get() {
            // Empty: a software event leads, and its members that count here are off or closed.
            if this_cpu.slots().len() > 0 {
                self.solve(this_cpu).map_err(|_| EAGAIN)?;
            }
            this_cpu.state().in_transaction.set(false);
        }
        Ok(())
    }
}

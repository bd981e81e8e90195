// SPDX-License-Identifier: GPL-2.0

//! `execve`: the new program must not inherit the PMU state of the old one.

use super::{
    branch,
    cpu_state::{
        CpuContexts,
        ExclusiveCpu, //
    },
    event::{
        counter,
        set_program, //
    },
    Driver, //
};
use crate::power::{
    exec::{
        current_program,
        Execve,
        OnExec, //
    },
    pmu::{
        self,
        LocalPmu, //
    },
    regs::Mmcr0,
    thread::CurrentThread, //
};
use kernel::sync::Arc;

/// Resets the PMU state of each task that calls `execve`: no EBB handler, EBBs off, and no bits of
/// the old program in MMCR0 and MMCR2. The events that the task keeps continue for the new program.
pub(super) struct ResetOnExec {
    driver: Arc<Driver>,
    cpus: Arc<CpuContexts>,
}

impl ResetOnExec {
    pub(super) fn new(driver: Arc<Driver>, cpus: Arc<CpuContexts>) -> Self {
        Self { driver, cpus }
    }
}

impl OnExec for ResetOnExec {
    fn exec(&self, execve: &Execve<'_>) {
        let reset = |this_cpu: &ExclusiveCpu| self.reset(this_cpu, execve.local());
        // SAFETY: By the invariants of `Execve` interrupts are off, in process context, so no
        // callback of perf core is running on this CPU.
        unsafe { self.cpus.with_exclusive_cpu(reset) };
    }
}

impl ResetOnExec {
    /// Resets the current task's PMU state.
    fn reset(&self, this_cpu: &ExclusiveCpu, local: &LocalPmu<'_>) {
        let has_events = this_cpu.slots().len() > 0;
        // If EBB events are on the PMU, `pmu_disable` saves the old program's registers, the reset
        // overwrites the saved values, and `pmu_enable` loads the result.
        let has_ebb = has_events && Mmcr0::read().ebe() == 1;
        if has_ebb {
            self.driver.pmu_disable(this_cpu);
        }
        CurrentThread::new(local).reset_for_exec();
        if has_ebb {
            discard_alerts(this_cpu);
        }
        if has_events {
            // The BHRB holds addresses of the old program.
            branch::clear_bhrb(this_cpu, local);
        }
        if has_ebb {
            self.driver.pmu_enable(this_cpu);
        }
    }
}

/// Clears the old program's alerts from the events on this CPU's PMU. The new program then finds
/// the same counter values as if the events were off the PMU.
fn discard_alerts(this_cpu: &ExclusiveCpu) {
    for event in this_cpu.slots().iter() {
        set_program(this_cpu.irqs_off(), event, current_program());
        if let Some(index) = counter(event).filter(|&at| pmu::read_pmc(at) >= pmu::NEGATIVE) {
            pmu::write_pmc(index, 0);
        }
    }
}

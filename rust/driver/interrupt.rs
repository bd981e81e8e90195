// SPDX-License-Identifier: GPL-2.0

//! The PMU's interrupt (PMI): counters that became negative.
//!
//! The first alert freezes the counters (MMCR0\[FCECE\]), and they stand still until the handler is
//! done.

use super::{
    alert,
    count,
    local_pmu,
    sample::Sampled,
    CpuState,
    Here, //
};
use crate::{
    isa207::{
        CpuModel,
        Isa, //
    },
    perf::{
        self,
        CpuContexts,
        Event,
        State, //
    },
    power::{
        interrupt::{
            Handler,
            Interrupted, //
        },
        machine,
        pmu,
        regs::Mmcr0,
        timer::Look, //
    },
};
use kernel::sync::{
    atomic::Relaxed,
    Arc, //
};

/// What handles PMIs.
pub(super) struct PmInterrupt {
    model: &'static CpuModel,
    cpus: Arc<CpuContexts<CpuState>>,
}

impl PmInterrupt {
    /// A handler on `model`, with the driver's per-CPU state.
    pub(super) fn new(model: &'static CpuModel, cpus: Arc<CpuContexts<CpuState>>) -> Self {
        Self { model, cpus }
    }
}

impl Handler for PmInterrupt {
    fn handle(&self, interrupted: &mut Interrupted) {
        let begin = machine::clock();
        let mmcr0 = Mmcr0::read();
        // SAFETY: Interrupts are off in the PMI's handler. It uses the state of a CPU only when the
        // PMU is not stopped, and so no other code is changing it.
        let Some(here) = (unsafe { self.cpus.this_cpu() }) else {
            return;
        };
        if mmcr0.ebe() == 1 {
            alert::interrupt(&here, mmcr0);
            return;
        }
        if here.stopped.get() {
            // Raised before the PMU was stopped, and due again when it starts.
            mmcr0.with_const_pmao::<0>().write();
            return;
        }
        if mmcr0.fc() == 0 {
            // A replay for a counter that was negative already: nothing froze the others, nor the
            // BHRB.
            mmcr0.with_const_fc::<1>().with_const_pmae::<0>().write();
            pmu::synchronize();
        }
        overflows(self.model, &here, interrupted);
        if self.model.isa() < Isa::V31 {
            // Programs may read the registers there while the PMU counts.
            local_pmu(&here).clear_sampled();
        }
        // Goes on counting, with alerts.
        Mmcr0::from(here.mmcr.get().mmcr0).alerting().write();
        // SAFETY: This is the PMI's handler.
        unsafe { perf::sample_took(machine::clock().wrapping_sub(begin)) };
    }
}

impl Look for PmInterrupt {
    fn look(&self, in_program: bool) -> Option<u64> {
        // SAFETY: Interrupts are off and PM interrupts are masked, so nobody else uses the state.
        let here = unsafe { self.cpus.this_cpu() }?;
        alert::look(&here, in_program)
    }
}

/// Deals with each counter that is negative.
fn overflows(model: &'static CpuModel, here: &Here<'_>, interrupted: &mut Interrupted) {
    let sampled = Sampled::read(model);
    for (index, &value) in sampled.counters().iter().enumerate() {
        if value < pmu::NEGATIVE {
            continue;
        }
        match here
            .slots()
            .iter()
            .find(|event| count::counter(event) == Some(index))
        {
            Some(event) if event.hw().state() == State::Running => {
                overflow(here, event, index, value, &sampled, interrupted);
            }
            // Nobody's, or stopped: it counts all the same, see `count::stop`.
            _ => pmu::write_pmc(index, 0),
        }
    }
    // These may be a program's registers, of which the kernel makes callers in later interrupts.
    interrupted.clear_sampled();
    // Whether it came in its own right or as a replay, all that was due is done.
    local_pmu(here).clear_pending_interrupt();
}

/// Counts what an event's counter has counted, starts it anew, and samples when the period is over.
fn overflow(
    here: &Here<'_>,
    event: &Event,
    index: usize,
    value: u32,
    sampled: &Sampled,
    interrupted: &mut Interrupted,
) {
    let hw = event.hw();
    let delta = count::delta(hw.prev_count().load(Relaxed), value);
    event.add_count(delta);

    let mut left = count::left_after(hw.period_left().load(Relaxed), delta);
    // CAST: Periods are positive.
    let period = hw.sample_period() as i64;
    let last_period = hw.last_period();
    let over = period != 0 && left <= 0;
    if over {
        left += period;
        if left <= 0 {
            left = period;
        }
        hw.set_last_period(here, hw.sample_period());
    }
    hw.period_left().store(left, Relaxed);
    let start = count::initial_value(here, event);
    hw.prev_count().store(start.into(), Relaxed);
    pmu::write_pmc(index, start);
    event.update_userpage();

    if over {
        sampled.report(here, event, last_period, interrupted);
    }
}

// SPDX-License-Identifier: GPL-2.0

//! The PMU's interrupt (PMI): counters that became negative, and samples.
//!
//! The first alert freezes the counters (MMCR0\[FCECE\]), and they stand still until the handler is
//! done.

use super::count;
use super::ebb;
use super::local_pmu;
use super::CpuState;
use super::Here;
use crate::perf;
use crate::perf::CpuContexts;
use crate::perf::Event;
use crate::perf::Sample;
use crate::perf::State;
use crate::power::interrupt::Handler;
use crate::power::interrupt::Interrupted;
use crate::power::machine;
use crate::power::pmu;
use crate::power::regs::Mmcr0;
use crate::power::regs::Mmcra;
use crate::power::regs::Siar;
use crate::power::regs::Sier;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;

/// What handles PMIs.
pub(super) struct PmInterrupt {
    cpus: Arc<CpuContexts<CpuState>>,
}

impl PmInterrupt {
    pub(super) fn new(cpus: Arc<CpuContexts<CpuState>>) -> Self {
        Self { cpus }
    }
}

impl Handler for PmInterrupt {
    fn handle(&self, interrupted: &mut Interrupted) {
        let begin = machine::clock();
        let mmcr0 = Mmcr0::read();
        if mmcr0.ebb_enable() == 1 {
            // Nothing waits for an alert that the program cannot take now.
            let _alert = ebb::interrupt(mmcr0, interrupted);
            return;
        }
        // SAFETY: Interrupts are off in the PMI's handler. It uses the state of a CPU only when the
        // PMU is not stopped, and so no other code is changing it.
        let Some(here) = (unsafe { self.cpus.this_cpu() }) else {
            return;
        };
        if here.stopped.get() {
            // Raised before the PMU was stopped, and due again when it starts.
            mmcr0.with_const_alert_occurred::<0>().write();
            return;
        }
        if mmcr0.frozen() == 0 {
            // A replay for a counter that was negative already: nothing froze the others.
            mmcr0.with_const_frozen::<1>().write();
        }
        overflows(&here, interrupted);
        // Goes on counting, with alerts.
        Mmcr0::from(here.mmcr.get().mmcr0).alerting().write();
        // SAFETY: This is the PMI's handler.
        unsafe { perf::sample_took(machine::clock().wrapping_sub(begin)) };
    }
}

/// Deals with each counter that is negative.
fn overflows(here: &Here<'_>, interrupted: &mut Interrupted) {
    let sampled = Sampled::read();
    let counters: [u32; pmu::COUNTERS] = core::array::from_fn(pmu::read_pmc);
    for (index, &value) in counters.iter().enumerate() {
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
    // Whether it came in its own right or as a replay, all that was due is done.
    local_pmu(here).clear_pending_interrupt();
}

/// The sampled instruction, read once for all counters.
struct Sampled {
    siar: u64,
    sier: Sier,
    mmcra: Mmcra,
}

impl Sampled {
    fn read() -> Self {
        Self {
            siar: Siar::read(),
            sier: Sier::read(),
            mmcra: Mmcra::read(),
        }
    }

    /// Instructions are sampled for marked events rather than at the overflow.
    fn is_marked(&self) -> bool {
        self.mmcra.sample_enable() == 1
    }

    /// Whether the sample is of any use: one of a marked event must have its instruction.
    fn is_valid(&self) -> bool {
        !self.is_marked() || self.sier.siar_valid() == 1
    }

    /// Whether SIAR says where the event happened rather than where it interrupted.
    ///
    /// In problem state the interrupt is prompt, so where it came is at least as good as SIAR. In
    /// the kernel it may have been held back; SIAR says where the overflow was.
    fn uses_siar(&self, interrupted: &Interrupted) -> bool {
        let prompt = interrupted.is_user() && self.sier.problem_state() == 1;
        self.siar != 0 && (self.is_marked() || !prompt)
    }
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

    // CAST: At most 2^32; periods are positive.
    let mut left = hw.period_left().load(Relaxed) - delta as i64;
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
    let start = count::initial_value(event);
    hw.prev_count().store(start.into(), Relaxed);
    pmu::write_pmc(index, start);
    event.update_userpage();

    if over {
        sample(event, last_period, sampled, interrupted);
    }
}

/// Reports a sample, unless it is worthless or not for the event's owner.
fn sample(event: &Event, period: u64, sampled: &Sampled, interrupted: &mut Interrupted) {
    let attr = event.attr();
    let uses_siar = sampled.uses_siar(interrupted);
    let ip = if uses_siar {
        sampled.siar
    } else {
        interrupted.nip()
    };
    let kernel = machine::is_kernel_address(ip);
    let unusable = attr.samples_ip() && !sampled.is_valid();
    if unusable {
        event.count_lost_sample();
    }
    if unusable || (attr.exclude_kernel() && kernel && attr.samples_ip()) {
        // SAFETY: This is called by the PMI's handler, for an event on this CPU.
        unsafe { perf::account_interrupt(event) };
        return;
    }
    // Privilege level and callchain of the sample are made of these by the kernel.
    interrupted.set_sampled(uses_siar, sampled.sier, sampled.mmcra);
    let mut sample = Sample::new(period);
    sample.set_ip(ip);
    // SAFETY: As above; the registers are those that the PMI interrupted.
    unsafe { sample.overflow(event, interrupted.as_raw()) };
}

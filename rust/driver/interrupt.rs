// SPDX-License-Identifier: GPL-2.0

//! The performance monitor interrupt (PMI): overflows of counters.
//!
//! A counter that becomes negative raises an alert. The first alert freezes all counters
//! (MMCR0\[FCECE\]), so the counters of a group stay consistent until the handler returns.

use super::event::Event;
use super::{
    count,
    cpu_state::{
        local_pmu,
        CpuContexts,
        ThisCpu, //
    },
    emulator::Emulator,
    event,
    period,
    pmi_time,
    sample::PmuSnapshot,
    throttle, //
};
use crate::{
    isa207::CpuModel,
    perf::{
        self,
        CounterState, //
    },
    power::{
        interrupt::{
            Handler,
            Interrupted, //
        },
        machine,
        pmu,
        regs::Mmcr0, //
    }, //
};
use kernel::{
    pr_warn_once,
    sync::Arc, //
};

/// The handler of PMIs.
pub(super) struct PmiHandler {
    model: &'static CpuModel,
    cpus: Arc<CpuContexts>,
    pub(super) emulator: Emulator,
}

impl PmiHandler {
    /// Makes the handler for CPUs of `model`, with the driver's per-CPU state.
    pub(super) fn new(
        model: &'static CpuModel,
        cpus: Arc<CpuContexts>,
        emulator: Emulator,
    ) -> Self {
        Self {
            model,
            cpus,
            emulator,
        }
    }
}

impl Handler for PmiHandler {
    fn handle(&self, interrupted: &mut Interrupted) {
        let handle = |this_cpu: &ThisCpu| self.handle_on(this_cpu, interrupted);
        // SAFETY: Interrupts are off in the handler of a PMI.
        unsafe { self.cpus.with_this_cpu(handle) };
    }

    fn has_pmu(&self) -> bool {
        // SAFETY: Interrupts are off, by the function's contract.
        unsafe { self.cpus.with_this_cpu(|this_cpu| this_cpu.has_pmu()) }
    }
}

impl PmiHandler {
    /// Handles a PMI of this CPU.
    fn handle_on(&self, this_cpu: &ThisCpu, interrupted: &mut Interrupted) {
        let began = machine::time_base();
        let mmcr0 = Mmcr0::read();
        if this_cpu.slots().len() == 0 {
            // KVM leaves the MMCR0 of a guest, with its alert, on a PMU that the host does not use.
            mmcr0.frozen().write();
            return;
        }
        if mmcr0.ebe() == 1 {
            // By the architecture no PMI occurs while EBE is set. PMAO and the counters belong to
            // the program, so do not change them.
            if !self.emulator.pmi_under_ebe(this_cpu, mmcr0, interrupted) {
                pr_warn_once!("ignoring a PM interrupt under MMCR0[EBE]\n");
            }
            return;
        }
        // In `ebb` mode all events are EBB events, which have EBE set while they are on the PMU.
        if cfg!(EBB_ONLY) || !this_cpu.enabled.get() {
            // The alert occurred before `pmu_disable` froze the counters. Drop it: `pmu_enable`
            // makes a PMI pending if a counter is negative.
            mmcr0.with_const_pmao::<0>().write();
            return;
        }
        let is_alert = mmcr0.fc() == 1;
        if !is_alert {
            // `pmu_enable` made this PMI pending: no alert froze the counters and the BHRB.
            mmcr0.with_const_fc::<1>().with_const_pmae::<0>().write();
            pmu::synchronize();
        }
        let excess = this_cpu.pmi_time.excess(began);
        let counters;
        let needed = if PmuSnapshot::needs_counters(this_cpu) {
            counters = core::array::from_fn(pmu::read_pmc);
            Some(&counters)
        } else {
            None
        };
        let pmi = Pmi {
            this_cpu,
            began,
            excess,
            snapshot: PmuSnapshot::read(self.model, needed, is_alert),
        };
        pmi.handle_overflows(interrupted);
        // Unfreeze the counters and enable alerts again.
        Mmcr0::from(this_cpu.mmcr0.get()).write();
        let took = this_cpu.pmi_time.account(began, excess);
        // SAFETY: This is the handler of a PMI.
        unsafe { perf::sample_event_took(machine::ticks_to_ns(took)) };
    }
}

/// A PMI while it is handled.
struct Pmi<'a> {
    this_cpu: &'a ThisCpu,
    /// The time base when the PMI began.
    began: u64,
    /// The excess of PMI time when the PMI began, see `pmi_time.rs`.
    excess: u64,
    /// The contents of the PMU's registers.
    snapshot: PmuSnapshot<'a>,
}

impl Pmi<'_> {
    /// Handles the overflow of each negative counter.
    fn handle_overflows(&self, interrupted: &mut Interrupted) {
        let this_cpu = self.this_cpu;
        let (mut used, mut found) = (0, false);
        for event in this_cpu.slots().iter() {
            let Some(index) = event::counter(event) else {
                continue;
            };
            used |= 1u8 << index;
            let value = pmu::read_pmc(index);
            if value < pmu::NEGATIVE {
                continue;
            }
            found = true;
            if event.hw().state() == CounterState::Running {
                self.handle_overflow(event, index, value, interrupted);
            } else {
                // The event is stopped, see `count::stop`.
                pmu::write_pmc(index, 0);
            }
        }
        for index in pmu::FREE_COUNTERS {
            found |= used & 1 << index == 0 && clear_negative(index);
        }
        if !found {
            // On POWER9 a counter without an event may be negative after a stop state. If a counter
            // with an event is negative, too, only that one is handled now; the other one raises
            // the next alert.
            for index in 0..pmu::COUNTERS {
                clear_negative(index);
            }
        }
        // `interrupted` may be the registers of a program, and the kernel reads these fields again
        // when it makes the program's callchain in a later interrupt. So clear them.
        interrupted.clear_perf_regs();
        // If another PMI was made pending in the meantime, it was for one of these counters.
        local_pmu(this_cpu.irqs_off()).clear_pmi_pending();
    }

    /// Adds the counter's events to the event's count, restarts the counter, and reports a sample
    /// if the period is over. Throttles the event if PMIs take too much time.
    #[inline(never)] // Saves 24 of 413 instructions of a sample (`make bench`).
    fn handle_overflow(
        &self,
        event: &Event,
        index: usize,
        value: u32,
        interrupted: &mut Interrupted,
    ) {
        let hw = event.hw_mut(self.this_cpu.irqs_off());
        let delta = count::delta(hw.prev_count(), value);
        hw.add_count(delta);

        let left = period::left_after(hw.period_left(), delta);
        let (next, ended) = (hw.sample_period(), hw.last_period());
        if next == 0 || left > 0 {
            hw.set_period_left(left);
            let value = if next == 0 { 0 } else { period::preload(left) };
            period::restart(&hw, index, value);
            return;
        }
        // The next period has begun. If the PMI was so late that one or more further periods are
        // over, too, the sample stands for them as well.
        // CAST: perf core refuses periods of 2^63 or more.
        let left = left + next as i64;
        let more = if left > 0 {
            0
        } else {
            next * (left.unsigned_abs().checked_div(next).unwrap_or(0) + 1)
        };
        // CAST: `more` exceeds the counter's count by less than a period.
        let left = left + more as i64;
        hw.set_period_left(left);
        period::restart(&hw, index, period::preload(left));
        if event.data().is_throttled.replace(false) {
            // The owner asked for one sample after each of the event's own periods.
            let samples = ended.checked_div(next).unwrap_or(0);
            event.count_lost_samples(samples.saturating_sub(1));
        }
        let period = ended.wrapping_add(more);
        // perf core computes the period of an event with a frequency from this number.
        hw.set_last_period(period);
        self.snapshot
            .report(self.this_cpu, event, period, interrupted);
        // Do not overwrite the value if perf core has started another period of the event.
        if hw.last_period() == period {
            hw.set_last_period(next);
        }
        if pmi_time::is_excessive(self.excess) {
            throttle::throttle(self.this_cpu, event, period, self.began);
        }
    }
}

/// Clears a counter without an event if it is negative: it would raise alerts endlessly. Returns
/// whether it was negative.
fn clear_negative(index: usize) -> bool {
    let negative = pmu::read_pmc(index) >= pmu::NEGATIVE;
    if negative {
        pmu::write_pmc(index, 0);
    }
    negative
}

/// KUnit tests (see `Documentation/testing.md`).
#[cfg(EBB_KUNIT)]
#[kernel::macros::kunit_tests(ebb_pmu_interrupt)]
mod tests {
    use crate::{
        perf::KernelEvent,
        power::{
            pmu::{
                self,
                LocalPmu, //
            },
            regs::Mmcr0, //
        }, //
    };
    use kernel::interrupt::local_interrupt_disable;

    #[test]
    fn a_pending_interrupt_is_seen_until_it_is_cleared() {
        let off = local_interrupt_disable();
        // SAFETY: Interrupts are off until `off` is dropped, after the last use.
        let local = unsafe { LocalPmu::new() };
        let before = local.clear_pmi_pending();
        local.set_pmi_pending();
        let pending = [(); 2].map(|()| local.clear_pmi_pending());
        drop(off);
        assert_eq!((before, pending), (false, [true, false]));
    }

    #[test]
    fn an_alert_on_a_pmu_without_events_freezes_and_closes_it() {
        // The event is disabled and so not on the PMU, but while it is open the driver handles
        // PMIs.
        let event = KernelEvent::open_cycles();
        assert!(event.is_ok());
        let off = local_interrupt_disable();
        // KVM leaves the PMU in this state when it stops a guest whose program has got an alert.
        // QEMU raises a PMI under EBE, too.
        Mmcr0::from(0)
            .with_const_fc::<1>()
            .with_const_ebe::<1>()
            .with_const_bhrba::<1>()
            .with_const_pmao::<1>()
            .write();
        for _ in 0..1000 {
            pmu::synchronize();
        }
        let mmcr0 = Mmcr0::read();
        let closed = Mmcr0::from(0).frozen();
        closed.write();
        // Interrupts must be on again before the assertion, which may fail.
        drop(off);
        assert_eq!(u64::from(mmcr0), u64::from(closed));
    }
}

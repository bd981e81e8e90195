// SPDX-License-Identifier: GPL-2.0

//! The performance monitor interrupt (PMI): overflows of counters.
//!
//! A counter that becomes negative raises an alert. The first alert freezes all counters
//! (MMCR0\[FCECE\]), so those of a group stay consistent until the handler is done.

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
    /// The handler for CPUs of `model`, with the driver's per-CPU state.
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
        let start = machine::time_base();
        let mmcr0 = Mmcr0::read();
        if this_cpu.slots().len() == 0 {
            // KVM leaves the MMCR0 of a guest, and its alert, on a PMU that the host does not use.
            mmcr0.frozen().write();
            return;
        }
        if mmcr0.ebe() == 1 {
            // By the architecture no PMI comes under EBE: leave PMAO and the counters to the
            // program.
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
            // A PMI that `pmu_enable` made pending: no alert has frozen the counters and the BHRB.
            mmcr0.with_const_fc::<1>().with_const_pmae::<0>().write();
            pmu::synchronize();
        }
        let excess = this_cpu.pmi_time.excess(start);
        let counters;
        let sampled = if PmuSnapshot::has_counters(this_cpu) {
            counters = core::array::from_fn(pmu::read_pmc);
            Some(&counters)
        } else {
            None
        };
        let pmi = Pmi {
            this_cpu,
            start,
            excess,
            snapshot: PmuSnapshot::read(self.model, sampled, is_alert),
        };
        pmi.handle_overflows(interrupted);
        // Unfreezes the counters and enables alerts again.
        Mmcr0::from(this_cpu.mmcr0.get()).write();
        let took = this_cpu.pmi_time.account(start, excess);
        // SAFETY: This is the handler of a PMI.
        unsafe { perf::sample_event_took(machine::ticks_to_ns(took)) };
    }
}

/// A PMI that is handled.
struct Pmi<'a> {
    this_cpu: &'a ThisCpu,
    /// When it began.
    start: u64,
    /// By how much PMIs exceeded their share then.
    excess: u64,
    /// What the PMU's registers held.
    snapshot: PmuSnapshot<'a>,
}

impl Pmi<'_> {
    /// Handles the overflow of each counter that is negative.
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
                // It is stopped, see `count::stop`.
                pmu::write_pmc(index, 0);
            }
        }
        for index in pmu::FREE_COUNTERS {
            found |= used & 1 << index == 0 && clear_negative(index);
        }
        if !found {
            // POWER9 may wake from a stop state with one. If another counter is negative, too, that
            // one is seen to first, and the alert of these is the next.
            for index in 0..pmu::COUNTERS {
                clear_negative(index);
            }
        }
        // `interrupted` may be the registers of a program, and the kernel reads these fields again
        // when it makes the program's callchain in a later interrupt: clear them.
        interrupted.clear_perf_regs();
        // If another PMI was made pending meanwhile, it was for one of these counters.
        local_pmu(this_cpu.irqs_off()).clear_pmi_pending();
    }

    /// Adds what the counter has counted to the event's count, restarts the counter, and reports a
    /// sample if the period is over. Throttles the event if PMIs take too much time.
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
            let start = if next == 0 { 0 } else { period::preload(left) };
            period::restart(&hw, index, start);
            return;
        }
        // The next period has begun. If it is over, too, as the PMI was late, or even several are,
        // the sample stands for them as well. CAST: perf core takes no period of 2^63 or more.
        let left = left + next as i64;
        let more = if left > 0 {
            0
        } else {
            next * (left.unsigned_abs().checked_div(next).unwrap_or(0) + 1)
        };
        // CAST: Less than a period more than what the counter has counted.
        let left = left + more as i64;
        hw.set_period_left(left);
        period::restart(&hw, index, period::preload(left));
        if event.data().is_throttled.replace(false) {
            // Its owner has asked for a sample after each of the event's own periods.
            let samples = ended.checked_div(next).unwrap_or(0);
            event.count_lost_samples(samples.saturating_sub(1));
        }
        let period = ended.wrapping_add(more);
        // perf core makes an event's frequency of this number.
        hw.set_last_period(period);
        self.snapshot
            .report(self.this_cpu, event, period, interrupted);
        // Unless perf core has started another period of the event.
        if hw.last_period() == period {
            hw.set_last_period(next);
        }
        if pmi_time::is_excessive(self.excess) {
            throttle::throttle(self.this_cpu, event, period, self.start);
        }
    }
}

/// Clears a counter, which counts nothing, if it is negative: it would raise an alert at once, for
/// ever. Returns whether it was.
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
        // Not on the PMU, as it is disabled, but PMIs are the driver's as long as it is open.
        let event = KernelEvent::open_cycles();
        assert!(event.is_ok());
        let off = local_interrupt_disable();
        // As KVM leaves the PMU when it stops a guest whose program has got an alert. QEMU raises a
        // PMI under EBE too.
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
        // A test that fails must not leave them off.
        drop(off);
        assert_eq!(u64::from(mmcr0), u64::from(closed));
    }
}

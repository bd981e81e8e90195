// SPDX-License-Identifier: GPL-2.0

//! Sample output: what a PMU's interrupt tells perf core.
//!
//! C header: [`include/linux/perf_event.h`](srctree/include/linux/perf_event.h)

use super::bindings;
use super::Event;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

/// A sample of an event under construction.
///
/// # Invariants
///
/// `data.sample_flags`, `period` and `dyn_size` are initialised, and so is each other field whose
/// bit is set in `sample_flags`: what perf core asks of a `struct perf_sample_data`.
pub(crate) struct Sample {
    data: MaybeUninit<bindings::perf_sample_data>,
}

impl Sample {
    /// A sample that stands for `period` events.
    pub(crate) fn new(period: u64) -> Self {
        let mut data = MaybeUninit::<bindings::perf_sample_data>::uninit();
        let raw = data.as_mut_ptr();
        // SAFETY: The fields are written through a pointer to owned memory.
        // INVARIANT: Only the period is announced.
        unsafe {
            (*raw).sample_flags = bindings::perf_event_sample_format_PERF_SAMPLE_PERIOD.into();
            (*raw).period = period;
            (*raw).dyn_size = 0;
        }
        Self { data }
    }

    /// Sets the address of the sampled instruction.
    pub(crate) fn set_ip(&mut self, ip: u64) {
        let raw = self.data.as_mut_ptr();
        // SAFETY: `sample_flags` is initialised by the type invariants.
        // INVARIANT: The field is written before it is announced.
        unsafe {
            (*raw).ip = ip;
            (*raw).sample_flags |= u64::from(bindings::perf_event_sample_format_PERF_SAMPLE_IP);
        }
    }

    /// Reports an overflow of `event`. perf core may stop the event meanwhile, through
    /// [`Pmu::stop`](super::Pmu::stop).
    ///
    /// # Safety
    ///
    /// The caller must be the PMU's interrupt handler, `regs` the interrupted state, and `event` on
    /// this CPU's PMU.
    pub(crate) unsafe fn overflow(
        mut self,
        event: &Event,
        regs: NonNull<kernel::bindings::pt_regs>,
    ) {
        // SAFETY: The sample is as perf core asks for by the type invariants; the rest is
        // guaranteed by the caller.
        unsafe {
            bindings::perf_event_overflow(event.as_raw(), self.data.as_mut_ptr(), regs.as_ptr())
        };
    }
}

/// Counts an interrupt of a sampling event that gave no sample, so that perf core throttles the
/// event if there are too many.
///
/// # Safety
///
/// The caller must be the PMU's interrupt handler, and `event` on this CPU's PMU.
pub(crate) unsafe fn account_interrupt(event: &Event) {
    // SAFETY: Guaranteed by the caller.
    unsafe { bindings::perf_event_account_interrupt(event.as_raw()) };
}

/// Tells perf core how long the PMU's interrupt took, in nanoseconds, so that it lowers the sample
/// rate if that is too much of the CPU's time.
///
/// # Safety
///
/// The caller must be the PMU's interrupt handler.
pub(crate) unsafe fn sample_took(nanoseconds: u64) {
    // SAFETY: Guaranteed by the caller, who cannot migrate.
    unsafe { bindings::perf_sample_event_took(nanoseconds) };
}

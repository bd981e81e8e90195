// SPDX-License-Identifier: GPL-2.0

//! Sample output: the reports of a PMU's interrupt to perf core.
//!
//! C header: [`include/linux/perf_event.h`](srctree/include/linux/perf_event.h),
//! `struct perf_sample_data`

use super::{
    bindings,
    BranchSample,
    BranchStack,
    MemDataSrc,
    PerfEvent,
    SampleFormat, //
};
use core::{
    marker::PhantomData,
    mem::MaybeUninit,
    ptr::NonNull, //
};
use kernel::prelude::*;

/// A sample of an event under construction.
///
/// # Invariants
///
/// The fields of the `struct perf_sample_data` that perf core reads are initialised:
/// `sample_flags`, `period`, `dyn_size`, `addr` (BPF programs read it even if it is not announced),
/// and each other field whose bit is set in `sample_flags`. Memory that fields point to lives for
/// `'a`. `dyn_size` is that of `br_stack` if the branch stack is announced, and 0 otherwise.
pub(crate) struct Sample<'a> {
    event: &'a PerfEvent,
    data: MaybeUninit<bindings::perf_sample_data>,
    borrows: PhantomData<&'a mut BranchStack>,
}

impl<'a> Sample<'a> {
    /// Makes a sample of `event` that stands for `period` occurrences, the last of them at the
    /// instruction at `ip`.
    #[inline]
    pub(crate) fn new(event: &'a PerfEvent, period: u64, ip: u64) -> Self {
        let mut data = MaybeUninit::<bindings::perf_sample_data>::uninit();
        let raw = data.as_mut_ptr();
        // CAST: bindgen gives the constants of the enumeration as 32-bit values.
        let period_bit = u64::from(bindings::perf_event_sample_format_PERF_SAMPLE_PERIOD);
        // SAFETY: The pointer is to owned memory.
        // INVARIANT: The fields that are always read are written here, and so are the announced
        // ones: the period and the address.
        unsafe {
            (*raw).sample_flags = period_bit | SampleFormat::Ip as u64;
            (*raw).period = period;
            (*raw).dyn_size = 0;
            (*raw).addr = 0;
            (*raw).ip = ip;
        }
        Self {
            event,
            data,
            borrows: PhantomData,
        }
    }

    /// Announces a field that has been written.
    fn announce(&mut self, formats: u64) {
        // SAFETY: `sample_flags` is initialised by the type invariants.
        // INVARIANT: The callers have written the field.
        unsafe { (*self.data.as_mut_ptr()).sample_flags |= formats };
    }

    /// Sets the effective address of the data that the instruction accessed. perf core derives the
    /// physical address and the size of the page from it.
    pub(crate) fn set_addr(&mut self, addr: u64) {
        // SAFETY: The pointer is to owned memory.
        unsafe { (*self.data.as_mut_ptr()).addr = addr };
        self.announce(SampleFormat::Addr as u64);
    }

    /// Sets the source of the data.
    pub(crate) fn set_data_src(&mut self, source: MemDataSrc) {
        // SAFETY: The pointer is to owned memory.
        unsafe { (*self.data.as_mut_ptr()).data_src.val = source.bits() };
        self.announce(SampleFormat::DataSrc as u64);
    }

    /// Sets the weight, in either form.
    pub(crate) fn set_weight(&mut self, weight: Weight) {
        // SAFETY: The pointer is to owned memory.
        unsafe { (*self.data.as_mut_ptr()).weight.full = weight.bits() };
        self.announce((SampleFormat::Weight | SampleFormat::WeightStruct).into());
    }

    /// Sets the branches that were taken before the sample. Keeps at most
    /// [`Attr::sample_max_stack`](super::Attr::sample_max_stack). Does nothing if the event asks
    /// for no branch stack. A second stack replaces the first.
    pub(crate) fn set_branch_stack(&mut self, stack: &'a mut BranchStack) {
        let attr = self.event.attr();
        if !attr.samples(SampleFormat::BranchStack) {
            return;
        }
        stack.truncate(attr.sample_max_stack().into());
        // `nr`, and `hw_idx` if the event asks for it.
        let words = if attr.branch_sample_type().contains(BranchSample::HwIndex) {
            2
        } else {
            1
        };
        // CAST: The sizes are a few hundred bytes.
        let bytes = words * size_of::<u64>() as u64
            + stack.len() * size_of::<bindings::perf_branch_entry>() as u64;
        let raw = self.data.as_mut_ptr();
        // SAFETY: The pointer is to owned memory.
        // INVARIANT: The size is that of the stack, which is borrowed for as long as the sample
        // lives.
        unsafe {
            (*raw).br_stack = stack.as_raw().as_ptr();
            (*raw).br_stack_cntr = core::ptr::null_mut();
            (*raw).dyn_size = bytes;
        }
        self.announce(SampleFormat::BranchStack as u64);
    }

    /// Returns the size of the announced data except for fields of a fixed size, in bytes.
    #[cfg(EBB_KUNIT)]
    pub(super) fn dyn_size(&self) -> u64 {
        // SAFETY: The field is initialised by the type invariants.
        unsafe { (*self.data.as_ptr()).dyn_size }
    }

    /// Reports the overflow: perf core writes the sample, wakes or signals the threads that wait
    /// for it, and throttles the event if there are too many samples. During this it may call
    /// [`Pmu::stop`](super::Pmu::stop), [`Pmu::start`](super::Pmu::start) and
    /// [`Pmu::read`](super::Pmu::read) for the event and members of its group.
    ///
    /// See `perf_event_overflow()` in `kernel/events/core.c`.
    ///
    /// # Safety
    ///
    /// The caller must be the PMU's interrupt handler, and the event must be on this CPU's PMU.
    /// `regs` must be the interrupted registers, or those with which the current task's program
    /// entered the kernel.
    pub(crate) unsafe fn overflow(mut self, regs: NonNull<kernel::bindings::pt_regs>) {
        let data = self.data.as_mut_ptr();
        // SAFETY: By the type invariants all fields that perf core reads are initialised; the
        // caller guarantees the other conditions.
        unsafe { bindings::perf_event_overflow(self.event.as_raw(), data, regs.as_ptr()) };
    }
}

/// The weight of a sample: `union perf_sample_weight`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// One number (`full`).
    Full(u64),
    /// `var1_dw`, `var2_w` and `var3_w`.
    Struct(u32, u16, u16),
}

impl Weight {
    /// Returns the union's value, which is the same for both endiannesses.
    pub(super) fn bits(self) -> u64 {
        match self {
            Self::Full(weight) => weight,
            Self::Struct(var1, var2, var3) => {
                u64::from(var1) | u64::from(var2) << 32 | u64::from(var3) << 48
            }
        }
    }
}

/// Reports to perf core how long the PMU's interrupt took, in nanoseconds. perf core lowers the
/// highest sample rate if interrupts take too much of the CPU's time
/// (`/proc/sys/kernel/perf_cpu_time_max_percent`).
///
/// See `perf_sample_event_took()` in `kernel/events/core.c`.
///
/// # Safety
///
/// The caller must be the PMU's interrupt handler.
pub(crate) unsafe fn sample_event_took(nanoseconds: u64) {
    // SAFETY: The caller is the PMU's interrupt handler, which cannot migrate.
    unsafe { bindings::perf_sample_event_took(nanoseconds) };
}

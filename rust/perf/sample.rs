// SPDX-License-Identifier: GPL-2.0

//! Sample output: what a PMU's interrupt tells perf core.
//!
//! C header: [`include/linux/perf_event.h`](srctree/include/linux/perf_event.h)

use super::{
    bindings,
    Attr,
    BranchStack,
    Event,
    MemorySource, //
};
use core::{
    marker::PhantomData,
    mem::MaybeUninit,
    ptr::NonNull, //
};

/// A sample of an event under construction.
///
/// # Invariants
///
/// `data.sample_flags`, `period`, `dyn_size` and `addr` (which BPF programs read in any case) are
/// initialised, and so is each other field whose bit is set in `sample_flags`: what perf core asks of
/// a `struct perf_sample_data`. What fields
/// point to lives for `'a`.
pub(crate) struct Sample<'a> {
    data: MaybeUninit<bindings::perf_sample_data>,
    borrows: PhantomData<&'a mut BranchStack>,
}

impl<'a> Sample<'a> {
    /// A sample that stands for `period` events, the last of which was at the instruction at `ip`;
    /// perf core says where if that is `None`.
    #[inline]
    pub(crate) fn new(period: u64, ip: Option<u64>) -> Self {
        let mut data = MaybeUninit::<bindings::perf_sample_data>::uninit();
        let raw = data.as_mut_ptr();
        let mut formats = bindings::perf_event_sample_format_PERF_SAMPLE_PERIOD;
        if ip.is_some() {
            formats |= bindings::perf_event_sample_format_PERF_SAMPLE_IP;
        }
        // SAFETY: The fields are written through a pointer to owned memory.
        // INVARIANT: What is announced is written: the period, and the address if there is one.
        unsafe {
            (*raw).sample_flags = formats.into();
            (*raw).period = period;
            (*raw).dyn_size = 0;
            (*raw).addr = 0;
            (*raw).ip = ip.unwrap_or(0);
        }
        Self {
            data,
            borrows: PhantomData,
        }
    }

    /// Sets the address of the data that the instruction accessed. perf core makes the physical
    /// address and the size of the page of it.
    pub(crate) fn set_address(&mut self, address: u64) {
        let raw = self.data.as_mut_ptr();
        // SAFETY: `sample_flags` is initialised by the type invariants.
        // INVARIANT: The field is written before it is announced.
        unsafe {
            (*raw).addr = address;
            (*raw).sample_flags |= u64::from(bindings::perf_event_sample_format_PERF_SAMPLE_ADDR);
        }
    }

    /// Sets where the data came from.
    pub(crate) fn set_data_source(&mut self, source: MemorySource) {
        let raw = self.data.as_mut_ptr();
        let format = bindings::perf_event_sample_format_PERF_SAMPLE_DATA_SRC;
        // SAFETY: `sample_flags` is initialised by the type invariants.
        // INVARIANT: The field is written before it is announced.
        unsafe {
            (*raw).data_src.val = source.bits();
            (*raw).sample_flags |= u64::from(format);
        }
    }

    /// Sets the weight, in either form.
    pub(crate) fn set_weight(&mut self, weight: Weight) {
        let raw = self.data.as_mut_ptr();
        let formats = bindings::perf_event_sample_format_PERF_SAMPLE_WEIGHT
            | bindings::perf_event_sample_format_PERF_SAMPLE_WEIGHT_STRUCT;
        // SAFETY: `sample_flags` is initialised by the type invariants.
        // INVARIANT: The field is written before it is announced.
        unsafe {
            (*raw).weight.full = weight.bits();
            (*raw).sample_flags |= u64::from(formats);
        }
    }

    /// Sets the branches before the sample, of which at most [`Attr::max_stack`] are kept. `attr` is
    /// that of the event, which must ask for them. Once for each sample.
    pub(crate) fn set_branches(&mut self, attr: &Attr, stack: &'a mut BranchStack) {
        stack.truncate(attr.max_stack().into());
        let mut words = 1;
        if attr.branch_sample().hw_index() {
            words += 1;
        }
        // CAST: Sizes fit any integer.
        let bytes = (words * size_of::<u64>()) as u64
            + stack.len() * size_of::<bindings::perf_branch_entry>() as u64;
        let raw = self.data.as_mut_ptr();
        let format = bindings::perf_event_sample_format_PERF_SAMPLE_BRANCH_STACK;
        // SAFETY: `sample_flags` and `dyn_size` are initialised by the type invariants.
        // INVARIANT: The fields are written before they are announced; the stack is borrowed for as
        // long as the sample lives.
        unsafe {
            (*raw).br_stack = stack.as_raw().as_ptr();
            (*raw).br_stack_cntr = core::ptr::null_mut();
            (*raw).dyn_size += bytes;
            (*raw).sample_flags |= u64::from(format);
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

/// How much a sample weighs: `union perf_sample_weight`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// One number.
    Whole(u64),
    /// `var1_dw`, `var2_w` and `var3_w`.
    Parts(u32, u16, u16),
}

impl Weight {
    /// The union's value on a little-endian machine.
    pub(super) fn bits(self) -> u64 {
        match self {
            Self::Whole(weight) => weight,
            Self::Parts(first, second, third) => {
                u64::from(first) | u64::from(second) << 32 | u64::from(third) << 48
            }
        }
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

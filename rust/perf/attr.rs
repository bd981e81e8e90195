// SPDX-License-Identifier: GPL-2.0

//! What user space asked for when it opened an event: `struct perf_event_attr`.
//!
//! C header: [`include/uapi/linux/perf_event.h`](srctree/include/uapi/linux/perf_event.h)

use super::{
    bindings,
    BranchSampleType,
    SampleFormat,
    SampleType, //
};
use kernel::types::Opaque;

/// What an event's `type` says about how to read its `config`: `enum perf_type_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventType {
    /// `PERF_TYPE_HARDWARE`: a generic hardware event.
    Hardware,
    /// `PERF_TYPE_HW_CACHE`: a cell of the cache event matrix.
    HwCache,
    /// `PERF_TYPE_RAW`: the processor's own event code.
    Raw,
    /// Another type, for another PMU.
    Other,
}

/// The form in which a sample holds a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WeightType {
    /// `PERF_SAMPLE_WEIGHT`: one number of 64 bits.
    Full,
    /// `PERF_SAMPLE_WEIGHT_STRUCT`: numbers of 32, 16 and 16 bits.
    Struct,
}

/// An event's attributes. Methods bear the names of the fields.
///
/// perf core has checked sizes and reserved bits (`perf_copy_attr()` in `kernel/events/core.c`);
/// what the values ask of the hardware is untrusted.
///
/// # Invariants
///
/// The value is a `struct perf_event_attr`, valid for reads. Of the fields read here, perf core
/// writes two once the event is open: `sample_period` (`PERF_EVENT_IOC_PERIOD`) and the bit
/// `enable_on_exec` (cleared by `execve`). So no reference to the structure is made.
#[repr(transparent)]
pub(crate) struct Attr(Opaque<bindings::perf_event_attr>);

/// Methods that read a flag of the structure.
macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident: $raw:ident,)+) => { $(
        $(#[$doc])*
        pub(crate) fn $name(&self) -> bool {
            // SAFETY: Valid for reads by the type invariants. A byte is read at a time, in which
            // perf core changes no other bit than `enable_on_exec`.
            unsafe { bindings::perf_event_attr::$raw(self.as_raw()) != 0 }
        }
    )+ };
}

impl Attr {
    fn as_raw(&self) -> *const bindings::perf_event_attr {
        self.0.get()
    }

    /// How to read [`Attr::config`].
    pub(crate) fn event_type(&self) -> EventType {
        // SAFETY: Valid for reads by the type invariants; nobody writes the field.
        match unsafe { (*self.as_raw()).type_ } {
            bindings::perf_type_id_PERF_TYPE_HARDWARE => EventType::Hardware,
            bindings::perf_type_id_PERF_TYPE_HW_CACHE => EventType::HwCache,
            bindings::perf_type_id_PERF_TYPE_RAW => EventType::Raw,
            _ => EventType::Other,
        }
    }

    /// The event: a code, a generic event's number or a cache event, see [`Attr::event_type`].
    pub(crate) fn config(&self) -> u64 {
        // SAFETY: Valid for reads by the type invariants; nobody writes the field.
        unsafe { (*self.as_raw()).config }
    }

    /// Extension of [`Attr::config`].
    pub(crate) fn config1(&self) -> u64 {
        // SAFETY: As in `config`. Every member of the union is an integer of 64 bits.
        unsafe { (*self.as_raw()).__bindgen_anon_3.config1 }
    }

    /// Extensions of [`Attr::config1`]: `config2`, `config3` and `config4`.
    pub(crate) fn more_config(&self) -> [u64; 3] {
        let attr = self.as_raw();
        // SAFETY: As in `config`. Every member of the union is an integer of 64 bits.
        unsafe {
            [
                (*attr).__bindgen_anon_4.config2,
                (*attr).config3,
                (*attr).config4,
            ]
        }
    }

    /// What each sample is to hold.
    pub(crate) fn sample_type(&self) -> SampleType {
        // SAFETY: As in `config`.
        SampleType::from_raw(unsafe { (*self.as_raw()).sample_type })
    }

    /// Whether each sample is to hold `format`.
    pub(crate) fn samples(&self, format: SampleFormat) -> bool {
        self.sample_type().contains(format)
    }

    /// The form in which each sample holds a weight, if it does. perf core refuses events that ask
    /// for both.
    pub(crate) fn weight_type(&self) -> Option<WeightType> {
        if self.samples(SampleFormat::Weight) {
            Some(WeightType::Full)
        } else if self.samples(SampleFormat::WeightStruct) {
            Some(WeightType::Struct)
        } else {
            None
        }
    }

    /// Which branches a branch stack is to hold, and what of each.
    pub(crate) fn branch_sample_type(&self) -> BranchSampleType {
        // SAFETY: As in `config`.
        BranchSampleType::from_raw(unsafe { (*self.as_raw()).branch_sample_type })
    }

    /// The most entries of a callchain or a branch stack.
    pub(crate) fn sample_max_stack(&self) -> u16 {
        // SAFETY: As in `config`.
        unsafe { (*self.as_raw()).sample_max_stack }
    }

    /// The registers that each sample holds, whether the interrupted ones or the program's: a bit
    /// each, by the architecture's numbers (`asm/perf_regs.h`). 0 when it holds none.
    pub(crate) fn sample_regs(&self) -> u64 {
        let mut registers = 0;
        if self.samples(SampleFormat::RegsUser) {
            // SAFETY: As in `config`.
            registers |= unsafe { (*self.as_raw()).sample_regs_user };
        }
        if self.samples(SampleFormat::RegsIntr) {
            // SAFETY: As in `config`.
            registers |= unsafe { (*self.as_raw()).sample_regs_intr };
        }
        registers
    }

    /// Events between two samples, or samples a second with [`Attr::freq`]; 0 when the event is
    /// only counted. [`Hw::sample_period`](super::Hw::sample_period) is the period that applies
    /// now.
    pub(crate) fn sample_period(&self) -> u64 {
        // SAFETY: Valid for reads by the type invariants.
        let period = unsafe { &raw const (*self.as_raw()).__bindgen_anon_1.sample_period };
        // SAFETY: As above; both members of the union are integers of 64 bits. Volatile, as perf
        // core may write another period at any time.
        unsafe { period.read_volatile() }
    }

    flags! {
        /// Whether [`Attr::sample_period`] is a frequency.
        freq: freq_raw,
        /// Whether the event is to be on the PMU at all times or fail.
        pinned: pinned_raw,
        /// Whether the group is to have the PMU to itself.
        exclusive: exclusive_raw,
        /// Whether children of the task inherit the event.
        inherit: inherit_raw,
        /// Whether the task's next `execve` enables the event.
        enable_on_exec: enable_on_exec_raw,
        /// Whether the event does not count in problem state.
        exclude_user: exclude_user_raw,
        /// Whether the event does not count in the kernel.
        exclude_kernel: exclude_kernel_raw,
        /// Whether the event does not count in the hypervisor.
        exclude_hv: exclude_hv_raw,
        /// Whether the event does not count in the idle task.
        exclude_idle: exclude_idle_raw,
        /// Whether the event counts in guests of KVM only.
        exclude_host: exclude_host_raw,
        /// Whether each overflow raises SIGTRAP in the task.
        sigtrap: sigtrap_raw,
    }
}

// SPDX-License-Identifier: GPL-2.0

//! The attributes with which user space opened an event: `struct perf_event_attr`.
//!
//! C header: [`include/uapi/linux/perf_event.h`](srctree/include/uapi/linux/perf_event.h)

use super::{
    bindings,
    BranchSampleType,
    SampleFormat,
    SampleType, //
};
use kernel::types::Opaque;

/// The meaning of an event's `config`, from its `type`: `enum perf_type_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventType {
    /// `PERF_TYPE_HARDWARE`: a generic hardware event.
    Hardware,
    /// `PERF_TYPE_HW_CACHE`: a cell of the cache event matrix.
    HwCache,
    /// `PERF_TYPE_RAW`: the processor's own event code.
    Raw,
    /// Any other type, for other PMUs.
    Other,
}

/// The form of a sample's weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WeightType {
    /// `PERF_SAMPLE_WEIGHT`: one number of 64 bits.
    Full,
    /// `PERF_SAMPLE_WEIGHT_STRUCT`: numbers of 32, 16 and 16 bits.
    Struct,
}

/// An event's attributes. Methods have the names of the fields.
///
/// perf core has checked sizes and reserved bits (`perf_copy_attr()` in `kernel/events/core.c`).
/// The values' meaning for the hardware is untrusted.
///
/// # Invariants
///
/// The value is a `struct perf_event_attr`, valid for reads. perf core writes two of the fields
/// read here after the event is open: `sample_period` (`PERF_EVENT_IOC_PERIOD`) and the bit
/// `enable_on_exec` (cleared by `execve`). So no reference to the structure is made.
#[repr(transparent)]
pub(crate) struct Attr(Opaque<bindings::perf_event_attr>);

/// Makes methods that read a flag of the structure.
macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident: $raw:ident,)+) => { $(
        $(#[$doc])*
        pub(crate) fn $name(&self) -> bool {
            // SAFETY: The structure is valid for reads by the type invariants. One byte is read at
            // a time, and perf core changes no bit in it except `enable_on_exec`.
            unsafe { bindings::perf_event_attr::$raw(self.as_raw()) != 0 }
        }
    )+ };
}

impl Attr {
    fn as_raw(&self) -> *const bindings::perf_event_attr {
        self.0.get()
    }

    /// Returns the meaning of [`Attr::config`].
    pub(crate) fn event_type(&self) -> EventType {
        // SAFETY: The field is valid for reads by the type invariants, and no code writes it.
        match unsafe { (*self.as_raw()).type_ } {
            bindings::perf_type_id_PERF_TYPE_HARDWARE => EventType::Hardware,
            bindings::perf_type_id_PERF_TYPE_HW_CACHE => EventType::HwCache,
            bindings::perf_type_id_PERF_TYPE_RAW => EventType::Raw,
            _ => EventType::Other,
        }
    }

    /// Returns the event: a code, a generic event's number or a cache event, see
    /// [`Attr::event_type`].
    pub(crate) fn config(&self) -> u64 {
        // SAFETY: The field is valid for reads by the type invariants, and no code writes it.
        unsafe { (*self.as_raw()).config }
    }

    /// Returns the extension of [`Attr::config`].
    pub(crate) fn config1(&self) -> u64 {
        // SAFETY: The field is valid for reads by the type invariants, and no code writes it. Every
        // member of the union is an integer of 64 bits.
        unsafe { (*self.as_raw()).__bindgen_anon_3.config1 }
    }

    /// Returns the extensions of [`Attr::config1`]: `config2`, `config3` and `config4`.
    pub(crate) fn more_config(&self) -> [u64; 3] {
        let attr = self.as_raw();
        // SAFETY: The fields are valid for reads by the type invariants, and no code writes them.
        // Every member of the union is an integer of 64 bits.
        unsafe {
            [
                (*attr).__bindgen_anon_4.config2,
                (*attr).config3,
                (*attr).config4,
            ]
        }
    }

    /// Returns the contents that each sample must have.
    pub(crate) fn sample_type(&self) -> SampleType {
        // SAFETY: The field is valid for reads by the type invariants, and no code writes it.
        SampleType::from_raw(unsafe { (*self.as_raw()).sample_type })
    }

    /// Returns whether each sample must contain `format`.
    pub(crate) fn samples(&self, format: SampleFormat) -> bool {
        self.sample_type().contains(format)
    }

    /// Returns the form of a sample's weight; `None` for samples without a weight. perf core
    /// refuses events that ask for both forms.
    pub(crate) fn weight_type(&self) -> Option<WeightType> {
        if self.samples(SampleFormat::Weight) {
            Some(WeightType::Full)
        } else if self.samples(SampleFormat::WeightStruct) {
            Some(WeightType::Struct)
        } else {
            None
        }
    }

    /// Returns which branches a branch stack contains, and which data about each.
    pub(crate) fn branch_sample_type(&self) -> BranchSampleType {
        // SAFETY: The field is valid for reads by the type invariants, and no code writes it.
        BranchSampleType::from_raw(unsafe { (*self.as_raw()).branch_sample_type })
    }

    /// Returns the largest number of entries of a callchain or a branch stack.
    pub(crate) fn sample_max_stack(&self) -> u16 {
        // SAFETY: The field is valid for reads by the type invariants, and no code writes it.
        unsafe { (*self.as_raw()).sample_max_stack }
    }

    /// Returns the registers that each sample contains, either the interrupted ones or the
    /// program's: one bit each, by the architecture's numbers (`asm/perf_regs.h`). 0 if it contains
    /// none.
    pub(crate) fn sample_regs(&self) -> u64 {
        let mut registers = 0;
        if self.samples(SampleFormat::RegsUser) {
            // SAFETY: The field is valid for reads by the type invariants, and no code writes it.
            registers |= unsafe { (*self.as_raw()).sample_regs_user };
        }
        if self.samples(SampleFormat::RegsIntr) {
            // SAFETY: The field is valid for reads by the type invariants, and no code writes it.
            registers |= unsafe { (*self.as_raw()).sample_regs_intr };
        }
        registers
    }

    /// Returns the number of events between two samples, or of samples per second with
    /// [`Attr::freq`]; 0 if the event only counts. [`Hw::sample_period`](super::Hw::sample_period)
    /// is the current period.
    pub(crate) fn sample_period(&self) -> u64 {
        // SAFETY: The structure is valid for reads by the type invariants.
        let period = unsafe { &raw const (*self.as_raw()).__bindgen_anon_1.sample_period };
        // SAFETY: The field is valid for reads, and both members of the union are integers of 64
        // bits. The read is volatile because perf core may write a new period at any time.
        unsafe { period.read_volatile() }
    }

    flags! {
        /// Whether [`Attr::sample_period`] is a frequency.
        freq: freq_raw,
        /// Whether the event must be on the PMU at all times or fail.
        pinned: pinned_raw,
        /// Whether the group must have the PMU to itself.
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
        /// Whether the event counts only in guests of KVM.
        exclude_host: exclude_host_raw,
        /// Whether each overflow raises SIGTRAP in the task.
        sigtrap: sigtrap_raw,
    }
}

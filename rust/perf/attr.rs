// SPDX-License-Identifier: GPL-2.0

//! What user space asked for when it opened an event: `struct perf_event_attr`.
//!
//! C header: [`include/uapi/linux/perf_event.h`](srctree/include/uapi/linux/perf_event.h)

use super::{
    bindings,
    BranchSample, //
};
use kernel::types::Opaque;

/// What an event's `type` says about how to read its `config`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `PERF_TYPE_HARDWARE`: a generic hardware event.
    Hardware,
    /// `PERF_TYPE_HW_CACHE`: a cell of the cache event matrix.
    HwCache,
    /// `PERF_TYPE_RAW`: the processor's own event code.
    Raw,
    /// Another type, for another PMU.
    Other,
}

/// How a sample holds a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WeightForm {
    /// `PERF_SAMPLE_WEIGHT`: one number of 64 bits.
    Whole,
    /// `PERF_SAMPLE_WEIGHT_STRUCT`: numbers of 32, 16 and 16 bits.
    Parts,
}

/// An event's attributes.
///
/// perf core checked sizes and reserved bits; what the values ask of the hardware is untrusted.
///
/// # Invariants
///
/// The value is valid for reads. Of what can be read here perf core changes `sample_period` only
/// (`PERF_EVENT_IOC_PERIOD`), once the event is open.
#[repr(transparent)]
pub(crate) struct Attr(Opaque<bindings::perf_event_attr>);

impl Attr {
    fn raw(&self) -> &bindings::perf_event_attr {
        // SAFETY: By the type invariants the value is valid for reads.
        unsafe { &*self.0.get() }
    }

    /// How to read [`Attr::config`].
    pub(crate) fn kind(&self) -> Kind {
        match self.raw().type_ {
            bindings::perf_type_id_PERF_TYPE_HARDWARE => Kind::Hardware,
            bindings::perf_type_id_PERF_TYPE_HW_CACHE => Kind::HwCache,
            bindings::perf_type_id_PERF_TYPE_RAW => Kind::Raw,
            _ => Kind::Other,
        }
    }

    /// The event: a code, a generic event's number or a cache event, see [`Attr::kind`].
    pub(crate) fn config(&self) -> u64 {
        self.raw().config
    }

    /// Extension of [`Attr::config`].
    pub(crate) fn config1(&self) -> u64 {
        // SAFETY: Every member of the union is an integer of 64 bits.
        unsafe { self.raw().__bindgen_anon_3.config1 }
    }

    /// Extension of [`Attr::config1`].
    pub(crate) fn config2(&self) -> u64 {
        // SAFETY: Every member of the union is an integer of 64 bits.
        unsafe { self.raw().__bindgen_anon_4.config2 }
    }

    /// `PERF_SAMPLE_*`: what each sample is to hold.
    pub(crate) fn sample_type(&self) -> u64 {
        self.raw().sample_type
    }

    /// Whether each sample holds the instruction's address (`PERF_SAMPLE_IP`).
    pub(crate) fn samples_ip(&self) -> bool {
        // CAST: bindgen gives the constants of the enumeration as 32-bit values.
        self.sample_type() & u64::from(bindings::perf_event_sample_format_PERF_SAMPLE_IP) != 0
    }

    /// Whether each sample holds anything that the driver has to find out beside the instruction's
    /// address, or registers.
    pub(crate) fn samples_more(&self) -> bool {
        let formats = bindings::perf_event_sample_format_PERF_SAMPLE_ADDR
            | bindings::perf_event_sample_format_PERF_SAMPLE_PHYS_ADDR
            | bindings::perf_event_sample_format_PERF_SAMPLE_DATA_PAGE_SIZE
            | bindings::perf_event_sample_format_PERF_SAMPLE_DATA_SRC
            | bindings::perf_event_sample_format_PERF_SAMPLE_WEIGHT
            | bindings::perf_event_sample_format_PERF_SAMPLE_WEIGHT_STRUCT
            | bindings::perf_event_sample_format_PERF_SAMPLE_BRANCH_STACK
            | bindings::perf_event_sample_format_PERF_SAMPLE_REGS_USER
            | bindings::perf_event_sample_format_PERF_SAMPLE_REGS_INTR;
        self.sample_type() & u64::from(formats) != 0
    }

    /// Whether each sample holds a stack of taken branches (`PERF_SAMPLE_BRANCH_STACK`).
    pub(crate) fn samples_branches(&self) -> bool {
        let branches = bindings::perf_event_sample_format_PERF_SAMPLE_BRANCH_STACK;
        self.sample_type() & u64::from(branches) != 0
    }

    /// Which branches that stack is to hold.
    pub(crate) fn branch_sample(&self) -> BranchSample {
        BranchSample(self.raw().branch_sample_type)
    }

    /// Most entries of a callchain or a stack of branches.
    pub(crate) fn max_stack(&self) -> u16 {
        self.raw().sample_max_stack
    }

    /// Whether each sample holds, or needs, the address of the data that were accessed
    /// (`PERF_SAMPLE_ADDR`, `PERF_SAMPLE_PHYS_ADDR`, `PERF_SAMPLE_DATA_PAGE_SIZE`).
    pub(crate) fn samples_address(&self) -> bool {
        let formats = bindings::perf_event_sample_format_PERF_SAMPLE_ADDR
            | bindings::perf_event_sample_format_PERF_SAMPLE_PHYS_ADDR
            | bindings::perf_event_sample_format_PERF_SAMPLE_DATA_PAGE_SIZE;
        self.sample_type() & u64::from(formats) != 0
    }

    /// Whether each sample says where data came from (`PERF_SAMPLE_DATA_SRC`).
    pub(crate) fn samples_data_source(&self) -> bool {
        let source = bindings::perf_event_sample_format_PERF_SAMPLE_DATA_SRC;
        self.sample_type() & u64::from(source) != 0
    }

    /// The form in which each sample holds a weight, if it does.
    pub(crate) fn sampled_weight(&self) -> Option<WeightForm> {
        let whole = bindings::perf_event_sample_format_PERF_SAMPLE_WEIGHT;
        let parts = bindings::perf_event_sample_format_PERF_SAMPLE_WEIGHT_STRUCT;
        match self.sample_type() {
            format if format & u64::from(whole) != 0 => Some(WeightForm::Whole),
            format if format & u64::from(parts) != 0 => Some(WeightForm::Parts),
            _ => None,
        }
    }

    /// The registers that each sample holds, of the interrupted state or the program's: a bit each,
    /// numbered as the architecture does.
    pub(crate) fn sampled_registers(&self) -> u64 {
        let mut registers = 0;
        let (user, interrupted) = (
            bindings::perf_event_sample_format_PERF_SAMPLE_REGS_USER,
            bindings::perf_event_sample_format_PERF_SAMPLE_REGS_INTR,
        );
        if self.sample_type() & u64::from(user) != 0 {
            registers |= self.raw().sample_regs_user;
        }
        if self.sample_type() & u64::from(interrupted) != 0 {
            registers |= self.raw().sample_regs_intr;
        }
        registers
    }

    /// Events between two samples, or samples a second with [`Attr::freq`]; 0 for none. What the
    /// event was opened with; [`Hw::sample_period`](super::Hw::sample_period) is what holds now.
    pub(crate) fn sample_period(&self) -> u64 {
        // SAFETY: Both members of the union are integers of 64 bits.
        unsafe { self.raw().__bindgen_anon_1.sample_period }
    }

    /// Whether [`Attr::sample_period`] is a frequency.
    pub(crate) fn freq(&self) -> bool {
        self.raw().freq() != 0
    }

    /// Whether the event is to be on the PMU at all times or fail.
    pub(crate) fn pinned(&self) -> bool {
        self.raw().pinned() != 0
    }

    /// Whether the group is to have the PMU for itself.
    pub(crate) fn exclusive(&self) -> bool {
        self.raw().exclusive() != 0
    }

    /// Whether children inherit the event.
    pub(crate) fn inherit(&self) -> bool {
        self.raw().inherit() != 0
    }

    /// Whether the event is enabled by the next exec.
    pub(crate) fn enable_on_exec(&self) -> bool {
        self.raw().enable_on_exec() != 0
    }

    /// Whether user state is not counted.
    pub(crate) fn exclude_user(&self) -> bool {
        self.raw().exclude_user() != 0
    }

    /// Whether kernel state is not counted.
    pub(crate) fn exclude_kernel(&self) -> bool {
        self.raw().exclude_kernel() != 0
    }

    /// Whether hypervisor state is not counted.
    pub(crate) fn exclude_hv(&self) -> bool {
        self.raw().exclude_hv() != 0
    }

    /// Whether the idle task is not counted.
    pub(crate) fn exclude_idle(&self) -> bool {
        self.raw().exclude_idle() != 0
    }

    /// How exact a sample's instruction address must be, 0 (any skid) to 3 (none).
    pub(crate) fn precise_ip(&self) -> u64 {
        self.raw().precise_ip()
    }
}

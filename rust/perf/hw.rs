// SPDX-License-Identifier: GPL-2.0

//! The part of an event that belongs to the PMU driver: `struct hw_perf_event`.
//!
//! C header: [`include/linux/perf_event.h`](srctree/include/linux/perf_event.h)

use super::{
    bindings,
    NewEvent,
    ThisCpu, //
};
use kernel::{
    sync::atomic::Atomic,
    types::Opaque, //
};

type Counting = bindings::hw_perf_event__bindgen_ty_1__bindgen_ty_1;
type Sampling = bindings::hw_perf_event__bindgen_ty_2__bindgen_ty_1;

/// Whether an event's counter runs: the bits `PERF_HES_*` of `state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CounterState {
    /// The counter runs; no bit is set.
    Running,
    /// The counter is stopped (`PERF_HES_STOPPED`) and the event's count is up to date
    /// (`PERF_HES_UPTODATE`).
    Stopped,
}

/// Who may write an event's plain fields: whoever opens it, or the code of the CPU that has it.
pub(crate) trait Holder {}

impl Holder for NewEvent<'_> {}
impl<S> Holder for ThisCpu<'_, S> {}

/// A driver's own data in an event.
///
/// Plain fields are written by a [`Holder`]; fields that others read or write meanwhile
/// (`prev_count`, `period_left`) are atomic.
///
/// # Invariants
///
/// The value lies in a live `struct perf_event` of a hardware PMU, so the counting and sampling
/// members of its unions are the ones in use.
#[repr(transparent)]
pub(crate) struct Hw(Opaque<bindings::hw_perf_event>);

impl Hw {
    fn counting(&self) -> *mut Counting {
        // CAST: The counting part is a member of the union at the start of the structure.
        self.0.get().cast()
    }

    fn sampling(&self) -> *mut Sampling {
        // SAFETY: By the type invariants the pointer is valid; no reference is made.
        let union = unsafe { &raw mut (*self.0.get()).__bindgen_anon_2 };
        // CAST: The sampling part is a member of that union.
        union.cast()
    }

    /// The event code that stands for what user space asked for.
    pub(crate) fn code(&self) -> u64 {
        // SAFETY: Valid and in use by the type invariants.
        unsafe { (*self.counting()).config }
    }

    /// Sets the event code.
    pub(crate) fn set_code(&self, _holder: &impl Holder, code: u64) {
        // SAFETY: Valid and in use by the type invariants; nobody else writes beside the holder.
        unsafe { (*self.counting()).config = code };
    }

    /// The number of the counter that the event is on, 0 for none.
    pub(crate) fn idx(&self) -> u32 {
        // SAFETY: Valid and in use by the type invariants.
        // CAST: Only `set_idx` writes the field, from a `u8`.
        unsafe { (*self.counting()).idx as u32 }
    }

    /// Sets the number of the counter that the event is on, 0 for none.
    pub(crate) fn set_idx(&self, _holder: &impl Holder, idx: u8) {
        // SAFETY: Valid and in use by the type invariants; nobody else writes beside the holder.
        unsafe { (*self.counting()).idx = idx.into() };
    }

    /// The driver's own flags.
    pub(crate) fn flags(&self) -> u32 {
        // SAFETY: Valid and in use by the type invariants.
        // CAST: A bit pattern, kept as the C type.
        unsafe { (*self.counting()).flags as u32 }
    }

    /// Sets the driver's own flags.
    pub(crate) fn set_flags(&self, _holder: &impl Holder, flags: u32) {
        // SAFETY: Valid and in use by the type invariants; nobody else writes beside the holder.
        // CAST: A bit pattern, kept as the C type.
        unsafe { (*self.counting()).flags = flags as i32 };
    }

    /// Whether the counter runs.
    pub(crate) fn state(&self) -> CounterState {
        // SAFETY: Valid by the type invariants.
        // CAST: A bit pattern, kept as the C type.
        let state = unsafe { (*self.0.get()).state as u32 };
        if state & bindings::PERF_HES_STOPPED != 0 {
            CounterState::Stopped
        } else {
            CounterState::Running
        }
    }

    /// Says whether the counter runs.
    pub(crate) fn set_state(&self, _holder: &impl Holder, state: CounterState) {
        let bits = match state {
            CounterState::Running => 0,
            CounterState::Stopped => bindings::PERF_HES_STOPPED | bindings::PERF_HES_UPTODATE,
        };
        // SAFETY: Valid by the type invariants; nobody else writes beside the holder.
        // CAST: A bit pattern, kept as the C type.
        unsafe { (*self.0.get()).state = bits as i32 };
    }

    /// The counter's value when it was last looked at.
    pub(crate) fn prev_count(&self) -> &Atomic<i64> {
        // SAFETY: Valid by the type invariants.
        let field = unsafe { &raw mut (*self.0.get()).prev_count };
        // SAFETY: The field lives as long as `self`, is aligned, and perf core and drivers only
        // access it atomically (`local64_t`). CAST: On 64-bit machines `local64_t` is a `long`.
        unsafe { Atomic::from_ptr(field.cast()) }
    }

    /// Events left until the next sample.
    pub(crate) fn period_left(&self) -> &Atomic<i64> {
        // SAFETY: Valid and in use by the type invariants.
        let field = unsafe { &raw mut (*self.sampling()).period_left };
        // SAFETY: As for `prev_count`. CAST: As for `prev_count`.
        unsafe { Atomic::from_ptr(field.cast()) }
    }

    /// Events between two samples; perf core adapts it for events with a frequency. 0 for an event
    /// that is only counted.
    pub(crate) fn sample_period(&self) -> u64 {
        // SAFETY: Valid by the type invariants.
        unsafe { (*self.0.get()).sample_period }
    }

    /// The period of the sample under way.
    pub(crate) fn last_period(&self) -> u64 {
        // SAFETY: Valid and in use by the type invariants.
        unsafe { (*self.sampling()).last_period }
    }

    /// Sets the period of the sample under way.
    pub(crate) fn set_last_period(&self, _holder: &impl Holder, period: u64) {
        // SAFETY: Valid and in use by the type invariants; nobody else writes beside the holder.
        unsafe { (*self.sampling()).last_period = period };
    }
}

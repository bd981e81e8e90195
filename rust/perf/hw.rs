// SPDX-License-Identifier: GPL-2.0

//! The part of an event that belongs to the PMU driver: `struct hw_perf_event`.
//!
//! perf core and the PMU's interrupt read and write some of these fields at any time, also on other
//! CPUs. So nothing here makes a reference to the structure, and each access is a single load or
//! store (`READ_ONCE()`, `WRITE_ONCE()`) or atomic.
//!
//! C header: [`include/linux/perf_event.h`](srctree/include/linux/perf_event.h)

use super::{
    bindings,
    local64::Local64,
    PerfEvent, //
};
use core::{
    marker::PhantomData,
    ops::Deref, //
};
use kernel::types::Opaque;

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

/// The counting and sampling state of an event. An [`HwMut`] can change it.
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
        // SAFETY: The structure is valid by the type invariants; no reference is made.
        let union = unsafe { &raw mut (*self.0.get()).__bindgen_anon_2 };
        // CAST: The sampling part is a member of that union.
        union.cast()
    }

    /// Returns the number of the counter that the event is on (`idx`); 0 for none.
    pub(crate) fn idx(&self) -> u32 {
        // SAFETY: The member is valid and in use by the type invariants.
        let idx = unsafe { (&raw const (*self.counting()).idx).read_volatile() };
        // CAST: Only `set_idx` writes the field, from a `u8`.
        idx as u32
    }

    /// Returns whether the counter runs.
    pub(crate) fn state(&self) -> CounterState {
        // SAFETY: The structure is valid by the type invariants.
        let state = unsafe { (&raw const (*self.0.get()).state).read_volatile() };
        // CAST: The value is a bit pattern.
        if state as u32 & bindings::PERF_HES_STOPPED != 0 {
            CounterState::Stopped
        } else {
            CounterState::Running
        }
    }

    fn prev_count_field(&self) -> &Local64 {
        // SAFETY: The structure is valid by the type invariants.
        let field = unsafe { &raw mut (*self.0.get()).prev_count };
        // SAFETY: The field is a `local64_t` that lives as long as `self`. CAST: On 64-bit machines
        // that is a `long`.
        unsafe { Local64::from_raw(field.cast()) }
    }

    fn period_left_field(&self) -> &Local64 {
        // SAFETY: The member is valid and in use by the type invariants.
        let field = unsafe { &raw mut (*self.sampling()).period_left };
        // SAFETY: The field is a `local64_t` that lives as long as `self`. CAST: On 64-bit machines
        // that is a `long`.
        unsafe { Local64::from_raw(field.cast()) }
    }

    /// Returns the counter's value at the last update of the event's count.
    #[inline]
    pub(crate) fn prev_count(&self) -> i64 {
        self.prev_count_field().get()
    }

    /// Returns the number of occurrences until the next sample. perf core sets it to 0 to start a
    /// new period.
    #[inline]
    pub(crate) fn period_left(&self) -> i64 {
        self.period_left_field().get()
    }

    /// Returns the number of occurrences between two samples, less than 2^63; 0 for an event that
    /// only counts. perf core changes it for events with a frequency and when user space sets a
    /// different period.
    pub(crate) fn sample_period(&self) -> u64 {
        // SAFETY: The structure is valid by the type invariants.
        unsafe { (&raw const (*self.0.get()).sample_period).read_volatile() }
    }

    /// Returns the period of the current sample, in occurrences.
    pub(crate) fn last_period(&self) -> u64 {
        // SAFETY: The member is valid and in use by the type invariants.
        unsafe { (&raw const (*self.sampling()).last_period).read_volatile() }
    }
}

/// The counting and sampling state of an event that is on this CPU, and the event's count
/// ([`PerfEvent::hw_mut`]). Other CPUs do not write them.
pub(crate) struct HwMut<'a> {
    event: &'a PerfEvent,
    /// Keeps the value from being sent to another thread.
    not_send: PhantomData<*mut ()>,
}

impl<'a> HwMut<'a> {
    #[inline]
    pub(super) fn new(event: &'a PerfEvent) -> Self {
        Self {
            event,
            not_send: PhantomData,
        }
    }

    /// Sets [`Hw::idx`].
    pub(crate) fn set_idx(&self, idx: u8) {
        // SAFETY: The member is valid and in use by the type invariants of `Hw`.
        unsafe { (&raw mut (*self.counting()).idx).write_volatile(idx.into()) };
    }

    /// Sets [`Hw::state`].
    pub(crate) fn set_state(&self, state: CounterState) {
        let bits = match state {
            CounterState::Running => 0,
            CounterState::Stopped => bindings::PERF_HES_STOPPED | bindings::PERF_HES_UPTODATE,
        };
        // CAST: The value is a bit pattern.
        let bits = bits as i32;
        // SAFETY: The structure is valid by the type invariants of `Hw`.
        unsafe { (&raw mut (*self.0.get()).state).write_volatile(bits) };
    }

    /// Sets [`Hw::last_period`].
    pub(crate) fn set_last_period(&self, period: u64) {
        // SAFETY: The member is valid and in use by the type invariants of `Hw`.
        unsafe { (&raw mut (*self.sampling()).last_period).write_volatile(period) };
    }

    /// Sets [`Hw::prev_count`].
    #[inline]
    pub(crate) fn set_prev_count(&self, value: i64) {
        self.prev_count_field().set(value);
    }

    /// Sets [`Hw::prev_count`] if it is `old`. Returns whether it was `old`.
    #[inline]
    pub(crate) fn replace_prev_count(&self, old: i64, new: i64) -> bool {
        self.prev_count_field().replace(old, new)
    }

    /// Sets [`Hw::period_left`].
    #[inline]
    pub(crate) fn set_period_left(&self, left: i64) {
        self.period_left_field().set(left);
    }

    /// Adds occurrences to the event's count, which wraps at 2^64.
    #[inline]
    pub(crate) fn add_count(&self, delta: u64) {
        // CAST: The sum wraps, so only the bits matter.
        self.event.count().add(delta as i64);
    }

    /// Updates the event's page, which user space may have mapped, with the event's current counter
    /// and count.
    ///
    /// If an interrupt does the same in the middle, the page may show the count of one update with
    /// the `prev_count` of the other. So the PMU's interrupt must be masked, or its handler must
    /// not use the event.
    #[inline]
    pub(crate) fn update_userpage(&self) {
        let event = self.event.as_raw();
        // SAFETY: The event is live by the type invariants of `PerfEvent`.
        let buffer = unsafe { (&raw const (*event).rb).read_volatile() };
        // Without a buffer there is no page, and the function would return at once, too. Code that
        // maps the page now updates it itself.
        if !buffer.is_null() {
            // SAFETY: The event is live by the type invariants of `PerfEvent`.
            unsafe { bindings::perf_event_update_userpage(event) };
        }
    }
}

impl Deref for HwMut<'_> {
    type Target = Hw;

    #[inline]
    fn deref(&self) -> &Hw {
        self.event.hw()
    }
}

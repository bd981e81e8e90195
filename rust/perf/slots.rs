// SPDX-License-Identifier: GPL-2.0

//! The events that are currently on one CPU's PMU, in the order in which they were added.
//!
//! perf core guarantees that an event lives from `add` to `del`. The callbacks in [`vtable`]
//! maintain this list accordingly, so a driver can use the events without a pointer of its own.
//!
//! [`vtable`]: super::vtable

use super::{
    Event,
    PmiCell, //
};
use core::hint::assert_unchecked;

/// The largest number of events on a CPU's PMU.
pub(super) const MAX_SLOTS: usize = 8;

/// The events on a CPU's PMU.
///
/// # Invariants
///
/// `len` is at most [`MAX_SLOTS`]. The first `len` pointers are to events that were added to this
/// CPU's PMU and whose `del` has not returned, so they are live. This holds after each single
/// store, because the PMU's interrupt may occur between any two stores.
pub(crate) struct Slots<D> {
    events: [PmiCell<*const Event<D>>; MAX_SLOTS],
    len: PmiCell<usize>,
    /// The number of events that were here when the PMU was last enabled. They are in the first
    /// slots.
    old: PmiCell<usize>,
}

impl<D> Slots<D> {
    pub(super) fn new() -> Self {
        // INVARIANT: `len` is 0, so no pointer has to be valid.
        Self {
            events: [const { PmiCell::new(core::ptr::null()) }; MAX_SLOTS],
            len: PmiCell::new(0),
            old: PmiCell::new(0),
        }
    }

    /// Returns the number of events, at most 8.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len.get()
    }

    /// Returns the cells of the slots that contain an event.
    #[inline]
    fn occupied(&self) -> &[PmiCell<*const Event<D>>] {
        // SAFETY: By the type invariants there are at least `len` slots.
        unsafe { self.events.get_unchecked(..self.len()) }
    }

    /// Returns the event in slot `slot`, counted from 0; `None` for an empty slot.
    #[inline]
    pub(crate) fn get(&self, slot: usize) -> Option<&Event<D>> {
        let event = self.occupied().get(slot)?.get();
        // SAFETY: By the type invariants the event is live. It remains live while this CPU executes
        // the PMU's code, and only that code can have a `&Slots` (see `ThisCpu`).
        Some(unsafe { &*event })
    }

    /// Returns the events in the order of their slots.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Event<D>> + Clone {
        self.occupied().iter().map(|event| {
            let event = event.get();
            // SAFETY: The event is live, as in `get`: `del` removes no event while this CPU
            // iterates. The pointer comes from a reference, so it is not null. Without the
            // assertion the compiler would check that at the end of each `zip`.
            unsafe {
                assert_unchecked(!event.is_null());
                &*event
            }
        })
    }

    /// Returns whether perf core is adding these events: the PMU has not been enabled since the
    /// first one was added. perf core holds the locks of their contexts during that time.
    pub(super) fn are_being_added(&self) -> bool {
        self.old.get() == 0
    }

    /// Records that the PMU is enabled. After that perf core may release the locks.
    pub(super) fn record_enable(&self) {
        self.old.set(self.len());
    }

    /// Returns whether there is room for another event.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.len() < MAX_SLOTS
    }

    /// Appends an event. Does nothing if there is no room.
    ///
    /// # Safety
    ///
    /// `event` must remain live until it is removed with [`Slots::remove`].
    #[inline]
    pub(super) unsafe fn push(&self, event: &Event<D>) {
        let len = self.len();
        if let Some(free) = self.events.get(len) {
            free.set(event);
            // INVARIANT: The pointer was stored just now, in an existing slot; the caller
            // guarantees that the event lives as long as it is here.
            self.len.set(len + 1);
        }
    }

    /// Removes an event and moves the events after it up. Returns whether it was here.
    #[inline]
    pub(super) fn remove(&self, event: &Event<D>) -> bool {
        let mut slots = self.occupied();
        // The search starts at the front because perf core removes a group starting with its first
        // event.
        while let [slot, behind @ ..] = slots {
            if core::ptr::eq(slot.get(), event) {
                break;
            }
            slots = behind;
        }
        if slots.is_empty() {
            return false;
        }
        let (slot, old) = (self.len().wrapping_sub(slots.len()), self.old.get());
        if slot < old {
            self.old.set(old.wrapping_sub(1));
        }
        while let [to, behind @ ..] = slots {
            if let [from, ..] = behind {
                // INVARIANT: Between two stores an event is in two slots, and both pointers are
                // valid.
                to.set(from.get());
            }
            slots = behind;
        }
        // INVARIANT: The last pointer is also in the slot before it, or is that of the removed
        // event, which was in one of `len` slots.
        self.len.set(self.len().wrapping_sub(1));
        true
    }
}

// SPDX-License-Identifier: GPL-2.0

//! The events that are on one CPU's PMU now, in the order in which they were added.
//!
//! perf core guarantees that an event lives from `add` to `del`. The callbacks in [`vtable`] keep
//! this list by that rule, so that a driver reaches the events without a pointer of its own.
//!
//! [`vtable`]: super::vtable

use super::{
    Event,
    PmiCell, //
};
use core::hint::assert_unchecked;

/// The most events that a CPU's PMU can hold at a time.
pub(super) const MAX_SLOTS: usize = 8;

/// The events on a CPU's PMU.
///
/// # Invariants
///
/// `len` is [`MAX_SLOTS`] at most. The first `len` pointers are of events that were added to this
/// CPU's PMU and whose `del` has not returned, hence live. That holds after each single store, as
/// the PMU's interrupt may come between any two.
pub(crate) struct Slots<D> {
    events: [PmiCell<*const Event<D>>; MAX_SLOTS],
    len: PmiCell<usize>,
    /// The number of events that were here when the PMU was last enabled. They are the first ones.
    old: PmiCell<usize>,
}

impl<D> Slots<D> {
    pub(super) fn new() -> Self {
        // INVARIANT: No pointer counts.
        Self {
            events: [const { PmiCell::new(core::ptr::null()) }; MAX_SLOTS],
            len: PmiCell::new(0),
            old: PmiCell::new(0),
        }
    }

    /// The number of events, at most 8.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len.get()
    }

    /// The cells of the slots that hold an event.
    #[inline]
    fn held(&self) -> &[PmiCell<*const Event<D>>] {
        // SAFETY: There are as many slots as that by the type invariants.
        unsafe { self.events.get_unchecked(..self.len()) }
    }

    /// The event in slot `slot`, counted from 0; `None` for an empty slot.
    #[inline]
    pub(crate) fn get(&self, slot: usize) -> Option<&Event<D>> {
        let event = self.held().get(slot)?.get();
        // SAFETY: By the type invariants the event is live. It stays so as long as this CPU is in
        // the PMU's code, which is the only way to a `&Slots` (see `ThisCpu`).
        Some(unsafe { &*event })
    }

    /// The events in the order of their slots.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Event<D>> + Clone {
        self.held().iter().map(|event| {
            let event = event.get();
            // SAFETY: As in `get`. While this CPU iterates, `del` takes no event out. Nor is the
            // pointer null, which the compiler would check at the end of each `zip` otherwise.
            unsafe {
                assert_unchecked(!event.is_null());
                &*event
            }
        })
    }

    /// Whether perf core is adding these events: the PMU has not been enabled since the first one
    /// came. perf core holds the locks of their contexts all the while.
    pub(super) fn are_coming(&self) -> bool {
        self.old.get() == 0
    }

    /// Notes that the PMU is enabled, after which perf core may give up those locks.
    pub(super) fn enabled(&self) {
        self.old.set(self.len());
    }

    /// Whether another event finds room.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.len() < MAX_SLOTS
    }

    /// Appends an event; does nothing when there is no room.
    ///
    /// # Safety
    ///
    /// `event` must stay live until it is taken out with [`Slots::take`].
    #[inline]
    pub(super) unsafe fn push(&self, event: &Event<D>) {
        let len = self.len();
        if let Some(free) = self.events.get(len) {
            free.set(event);
            // INVARIANT: The pointer was stored just now, in a slot that there is; the caller
            // guarantees that the event lives as long as it is here.
            self.len.set(len + 1);
        }
    }

    /// Takes an event out and moves those behind it up. Returns whether it was here.
    #[inline]
    pub(super) fn take(&self, event: &Event<D>) -> bool {
        let mut slots = self.held();
        // perf core takes a group out from the first event on.
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
                // INVARIANT: Meanwhile an event is in two slots.
                to.set(from.get());
            }
            slots = behind;
        }
        // INVARIANT: The last pointer is in the slot before too, or is that of the event, which is
        // in one of `len` slots.
        self.len.set(self.len().wrapping_sub(1));
        true
    }
}

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

/// The most events that a CPU's PMU can hold at a time.
pub(super) const MAX_SLOTS: usize = 8;

/// The events on a CPU's PMU.
///
/// # Invariants
///
/// The first `len` pointers are of events that were added to this CPU's PMU and whose `del` has
/// not returned, hence live. That holds after each single store, as the PMU's interrupt may come
/// between any two.
pub(crate) struct Slots {
    events: [PmiCell<*const Event>; MAX_SLOTS],
    len: PmiCell<usize>,
    /// Events came or went since the PMU was enabled.
    changed: PmiCell<bool>,
}

impl Slots {
    pub(super) fn new() -> Self {
        // INVARIANT: No pointer counts.
        Self {
            events: [const { PmiCell::new(core::ptr::null()) }; MAX_SLOTS],
            len: PmiCell::new(0),
            changed: PmiCell::new(false),
        }
    }

    /// The number of events, at most 8.
    pub(crate) fn len(&self) -> usize {
        self.len.get()
    }

    /// The event in slot `slot`, counted from 0; `None` for an empty slot.
    pub(crate) fn get(&self, slot: usize) -> Option<&Event> {
        if slot >= self.len() {
            return None;
        }
        let event = self.events.get(slot)?.get();
        // SAFETY: By the type invariants the event is live. It stays so as long as this CPU is in
        // the PMU's code, which is the only way to a `&Slots` (see `ThisCpu`).
        Some(unsafe { &*event })
    }

    /// The events in the order of their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Event> + Clone {
        let events = self.events.get(..self.len()).unwrap_or(&[]);
        // SAFETY: As in `get`. While this CPU iterates, `del` takes no event out.
        events.iter().map(|event| unsafe { &*event.get() })
    }

    /// Whether perf core is scheduling these events: some came or went, and the PMU has not been
    /// enabled since. perf core holds the lock of their contexts all the while.
    pub(super) fn are_changing(&self) -> bool {
        self.changed.get()
    }

    /// Notes that the PMU is enabled, after which perf core may give up that lock.
    pub(super) fn enabled(&self) {
        self.changed.set(false);
    }

    /// The slot of `event`.
    pub(super) fn position(&self, event: &Event) -> Option<usize> {
        self.iter().position(|held| held.is(event))
    }

    /// Whether another event finds room.
    pub(super) fn has_room(&self) -> bool {
        self.len() < MAX_SLOTS
    }

    /// Appends an event; does nothing when there is no room.
    ///
    /// # Safety
    ///
    /// `event` must stay live until it is taken out with [`Slots::remove`].
    pub(super) unsafe fn push(&self, event: &Event) {
        if let Some(free) = self.events.get(self.len()) {
            self.changed.set(true);
            free.set(event);
            // INVARIANT: The pointer was stored just now; the caller guarantees that the event
            // lives as long as it is here.
            self.len.set(self.len() + 1);
        }
    }

    /// Takes the event in `slot` out and moves those behind it up; does nothing when the slot is
    /// empty.
    pub(super) fn remove(&self, slot: usize) {
        let len = self.len();
        if slot >= len {
            return;
        }
        self.changed.set(true);
        let events = self.events.get(..len).unwrap_or_default();
        for pair in events.windows(2).skip(slot) {
            let [to, from] = pair else { break };
            // INVARIANT: Meanwhile an event is in two slots.
            to.set(from.get());
        }
        // INVARIANT: The last pointer is in the slot before too, or is that of the event.
        self.len.set(len - 1);
    }
}

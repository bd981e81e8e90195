// SPDX-License-Identifier: GPL-2.0

//! An event: `struct perf_event`.
//!
//! C header: [`include/linux/perf_event.h`](srctree/include/linux/perf_event.h)

use super::{
    bindings,
    local64::Local64,
    Attr,
    Hw,
    HwMut,
    IrqsOff, //
};
use core::{
    marker::PhantomData,
    ops::Deref, //
};
use kernel::{
    bindings::list_head,
    container_of,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
    types::Opaque, //
};

/// An event of a hardware PMU, as perf core sees it.
///
/// # Invariants
///
/// The value is a live `struct perf_event` that a hardware PMU is opening or has opened. One of the
/// PMU's callbacks is using it, so perf core has not revoked it (and set `pmu` to null).
#[repr(transparent)]
pub(crate) struct PerfEvent(Opaque<bindings::perf_event>);

impl PerfEvent {
    /// Makes a reference from perf core's pointer.
    ///
    /// # Safety
    ///
    /// `ptr` must satisfy the type invariants for the lifetime `'a`.
    pub(super) unsafe fn from_raw<'a>(ptr: *mut bindings::perf_event) -> &'a Self {
        // SAFETY: The caller guarantees a live event; the type is transparent over it.
        unsafe { &*ptr.cast() }
    }

    pub(super) fn as_raw(&self) -> *mut bindings::perf_event {
        self.0.get()
    }

    /// Returns the event's unique number, which no other event ever had (`id`).
    #[inline]
    pub(crate) fn id(&self) -> u64 {
        // SAFETY: The event is live by the type invariants; perf core wrote the field before its
        // first callback.
        unsafe { (*self.as_raw()).id }
    }

    /// Returns the PMU, which is registered as long as the reference lives.
    pub(super) fn pmu(&self) -> *mut bindings::pmu {
        // SAFETY: The event is live by the type invariants; perf core wrote the field before its
        // first callback.
        unsafe { (*self.as_raw()).pmu }
    }

    /// Returns the attributes from user space.
    pub(crate) fn attr(&self) -> &Attr {
        // SAFETY: The event is live by the type invariants.
        let attr = unsafe { &raw const (*self.as_raw()).attr };
        // SAFETY: The attributes are part of the event; `Attr` is transparent over them.
        unsafe { &*attr.cast() }
    }

    /// Returns the event's counting and sampling state, read-only.
    pub(crate) fn hw(&self) -> &Hw {
        // SAFETY: The event is live by the type invariants.
        let hw = unsafe { &raw const (*self.as_raw()).hw };
        // SAFETY: The data are part of the event; `Hw` is transparent over them.
        unsafe { &*hw.cast() }
    }

    /// Returns the event's counting and sampling state, writable. The event must be on the current
    /// CPU, or be added to it or deleted from it. The result also borrows the proof, so it ends
    /// before interrupts are on.
    #[inline]
    pub(crate) fn hw_mut<'a>(&'a self, _irqs_off: &'a IrqsOff<'_>) -> HwMut<'a> {
        HwMut::new(self)
    }

    /// Returns whether the event follows a task and not a CPU.
    pub(crate) fn follows_task(&self) -> bool {
        // SAFETY: The event is live by the type invariants. perf core sets this bit before its
        // first callback, and other bits at any time.
        let state = unsafe { (&raw const (*self.as_raw()).attach_state).read_volatile() };
        state & bindings::PERF_ATTACH_TASK != 0
    }

    /// Returns `other` if it belongs to the same PMU and the same driver. A second driver that
    /// shares the PMU stores no data in its events.
    ///
    /// # Safety
    ///
    /// `other` must be live for the lifetime `'a`, and its PMU must remain registered for that
    /// time. If it is the same PMU, its driver must have accepted `other`, and any data of `other`
    /// must have the type `D`.
    unsafe fn if_same_pmu<'a, D>(&self, other: *mut bindings::perf_event) -> Option<&'a Event<D>> {
        // SAFETY: The caller guarantees a live event.
        let (pmu, data) = unsafe { ((*other).pmu, (*other).pmu_private) };
        let is_same = self.pmu() == pmu && !data.is_null();
        // SAFETY: The caller guarantees a live event, and its PMU is a hardware PMU.
        is_same.then(|| unsafe { Event::from_raw(other) })
    }

    /// Returns whether both events follow the same task, or both the same CPU.
    pub(crate) fn shares_context(&self, other: &PerfEvent) -> bool {
        // SAFETY: Both events are live by the type invariants. perf core sets the context before an
        // event is first scheduled in, and does not change it while the event is on a CPU.
        unsafe { (*self.as_raw()).ctx == (*other.as_raw()).ctx }
    }

    /// Returns whether both are the same event.
    pub(crate) fn is(&self, other: &PerfEvent) -> bool {
        core::ptr::eq(self, other)
    }

    /// Returns whether the event's owner has disabled it. The owner may enable it at any time.
    pub(crate) fn is_off(&self) -> bool {
        // SAFETY: The event is live by the type invariants.
        let state = unsafe { (&raw const (*self.as_raw()).state).read_volatile() };
        state == bindings::perf_event_state_PERF_EVENT_STATE_OFF
    }

    /// Returns the event's count. perf core reads it at any time, also on other CPUs.
    pub(super) fn count(&self) -> &Local64 {
        // SAFETY: The event is live by the type invariants.
        let field = unsafe { &raw mut (*self.as_raw()).count };
        // SAFETY: The field is a `local64_t` that lives as long as `self`. CAST: On 64-bit machines
        // that is a `long`.
        unsafe { Local64::from_raw(field.cast()) }
    }

    /// Counts samples that had to be dropped. User space reads the number from the event that it
    /// opened, so lost samples of an inherited event count there.
    pub(crate) fn count_lost_samples(&self, samples: u64) {
        // SAFETY: The event is live by the type invariants; perf core wrote the field before its
        // first callback.
        let parent = unsafe { (*self.as_raw()).parent };
        let event = if parent.is_null() {
            self.as_raw()
        } else {
            parent
        };
        // SAFETY: `event` is `self`, which is live by the type invariants, or its parent, which
        // perf core keeps for as long as the inherited event.
        let field = unsafe { &raw mut (*event).lost_samples };
        // SAFETY: The field lives as long as `self`, is aligned, and is only accessed atomically
        // (`atomic64_t`). CAST: `atomic64_t` is a structure of one `s64`.
        let lost: &Atomic<i64> = unsafe { Atomic::from_ptr(field.cast()) };
        // CAST: The number of samples is far below 2^63.
        lost.add(samples as i64, Relaxed);
    }
}

/// An event that a PMU driver has accepted, with the driver's data.
///
/// # Invariants
///
/// `pmu_private` of the event points to a `D`, which lives as long as the event.
#[repr(transparent)]
pub(crate) struct Event<D>(PerfEvent, PhantomData<D>);

impl<D> Event<D> {
    /// Makes a reference from perf core's pointer.
    ///
    /// # Safety
    ///
    /// `ptr` must satisfy the type invariants, and those of [`PerfEvent`], for the lifetime `'a`.
    pub(super) unsafe fn from_raw<'a>(ptr: *mut bindings::perf_event) -> &'a Self {
        // SAFETY: The caller guarantees a live event; the type is transparent over it.
        unsafe { &*ptr.cast() }
    }

    /// Returns the driver's data of the event.
    #[inline]
    pub(crate) fn data(&self) -> &D {
        // SAFETY: The pointer is valid by the type invariants; it does not change while the event
        // lives.
        unsafe { &*(*self.as_raw()).pmu_private.cast() }
    }
}

impl<D> Deref for Event<D> {
    type Target = PerfEvent;

    #[inline]
    fn deref(&self) -> &PerfEvent {
        &self.0
    }
}

/// An event that is being opened.
///
/// # Invariants
///
/// The event is in its PMU's `event_init`. It is not a sibling of its leader yet, and perf core
/// holds the context of the leader, whose group cannot change until then (`perf_try_init_event()`
/// in `kernel/events/core.c`).
pub(crate) struct NewEvent<'a, D>(&'a PerfEvent, PhantomData<D>);

impl<'a, D> NewEvent<'a, D> {
    /// Makes a reference from perf core's pointer.
    ///
    /// # Safety
    ///
    /// `ptr` must be the pointer that perf core gave to `event_init`, which must not return before
    /// `'a` ends. The events that its PMU has accepted have data of type `D`.
    pub(super) unsafe fn from_raw(ptr: *mut bindings::perf_event) -> Self {
        // SAFETY: The caller guarantees a live event. INVARIANT: The caller guarantees that it is
        // in `event_init`.
        Self(unsafe { PerfEvent::from_raw(ptr) }, PhantomData)
    }

    /// Returns the leader of the event's group, which may be the event itself.
    fn raw_leader(&self) -> *mut bindings::perf_event {
        // SAFETY: The event is live by the type invariants; perf core wrote the field before the
        // callback.
        unsafe { (*self.0.as_raw()).group_leader }
    }

    /// Returns whether the event opens a group.
    #[inline]
    pub(crate) fn leads(&self) -> bool {
        self.raw_leader() == self.0.as_raw()
    }

    /// Returns whether perf core opens the event for a new task, as a copy of an event of the
    /// parent task.
    pub(crate) fn is_inherited(&self) -> bool {
        // SAFETY: The event is live by the type invariants; perf core wrote the field before the
        // callback.
        !unsafe { (*self.0.as_raw()).parent }.is_null()
    }

    /// Returns the leader of the event's group; `None` if that is the event itself, or an event of
    /// another PMU, such as a software event.
    pub(crate) fn leader(&self) -> Option<&'a Event<D>> {
        if self.leads() {
            return None;
        }
        // SAFETY: perf core holds the leader while it opens a member, and the leader's PMU accepted
        // it.
        unsafe { self.0.if_same_pmu(self.raw_leader()) }
    }

    /// Returns the members that the event's group has so far on the same PMU, the leader first,
    /// without the event itself. Empty for an event that opens a group.
    pub(crate) fn group(&self) -> Group<'a, D> {
        // SAFETY: perf core holds the leader, and by the type invariants the group does not change.
        let mut group = unsafe { Group::of(self.0) };
        if self.leads() {
            group.leader = None;
        }
        group
    }
}

impl<D> Deref for NewEvent<'_, D> {
    type Target = PerfEvent;

    fn deref(&self) -> &PerfEvent {
        self.0
    }
}

/// Iterator over the events of a context that are on the same PMU as one of its events.
///
/// # Invariants
///
/// `next` is `head` or the `event_entry` of a live event of the context whose list starts at
/// `head`.
pub(crate) struct ContextEvents<'a, D> {
    member: &'a Event<D>,
    next: *mut list_head,
    head: *mut list_head,
}

impl<'a, D> ContextEvents<'a, D> {
    /// Returns an iterator over the context of `member`.
    ///
    /// # Safety
    ///
    /// `member` must be in a context, which must neither change nor be freed for the lifetime `'a`.
    pub(super) unsafe fn of(member: &'a Event<D>) -> Self {
        // SAFETY: The event is live, and the caller guarantees that its context is.
        let head = unsafe { &raw mut (*(*member.as_raw()).ctx).event_list };
        // INVARIANT: The caller guarantees that all events of the list are live.
        Self {
            member,
            // SAFETY: perf core initialised the head of the list.
            next: unsafe { (*head).next },
            head,
        }
    }
}

impl<'a, D: 'a> Iterator for ContextEvents<'a, D> {
    type Item = &'a Event<D>;

    fn next(&mut self) -> Option<&'a Event<D>> {
        while self.next != self.head {
            let node = self.next;
            // SAFETY: By the type invariants `node` is in the list, whose entries are live.
            // INVARIANT: The next node is in the same list.
            self.next = unsafe { (*node).next };
            // SAFETY: By the type invariants `node` is a live event's `event_entry`.
            let event = unsafe { container_of!(node, bindings::perf_event, event_entry) };
            // SAFETY: The event is live by the type invariants, and its PMU is registered as long
            // as the context holds the event.
            if let Some(event) = unsafe { self.member.if_same_pmu(event) } {
                return Some(event);
            }
        }
        None
    }
}

/// Iterator over the events of a group that are on the same PMU as one of its events, the leader
/// first.
///
/// # Invariants
///
/// `leader` is live. `next` is `head` or the `sibling_list` of a live event of the group whose list
/// starts at `head`.
pub(crate) struct Group<'a, D> {
    member: &'a PerfEvent,
    leader: Option<*mut bindings::perf_event>,
    next: *mut list_head,
    head: *mut list_head,
    data: PhantomData<D>,
}

impl<'a, D> Group<'a, D> {
    /// Returns an iterator over the group of `member`.
    ///
    /// # Safety
    ///
    /// The group must neither change nor be freed for the lifetime `'a`.
    pub(super) unsafe fn of(member: &'a PerfEvent) -> Self {
        // SAFETY: The event is live; perf core wrote the leader before the first callback.
        let leader = unsafe { (*member.as_raw()).group_leader };
        // SAFETY: The caller guarantees a live leader; perf core initialised the head of its list.
        let (head, leads) = unsafe {
            let leads = (*leader).group_leader == leader;
            (&raw mut (*leader).sibling_list, leads)
        };
        // INVARIANT: The caller guarantees that all events of the list are live. User space may
        // name a member as the leader of a new event, and perf core refuses that only after
        // `event_init`. The named leader is then only a node of a list and not its head, so the
        // iterator must not follow it.
        Self {
            member,
            leader: Some(leader),
            // SAFETY: The leader is live, and perf core initialised the head of its list.
            next: if leads { unsafe { (*head).next } } else { head },
            head,
            data: PhantomData,
        }
    }
}

impl<'a, D: 'a> Iterator for Group<'a, D> {
    type Item = &'a Event<D>;

    fn next(&mut self) -> Option<&'a Event<D>> {
        if let Some(leader) = self.leader.take() {
            // SAFETY: The leader is live by the type invariants.
            if let Some(leader) = unsafe { self.member.if_same_pmu(leader) } {
                return Some(leader);
            }
        }
        while self.next != self.head {
            let node = self.next;
            // SAFETY: By the type invariants `node` is in the list.
            // INVARIANT: The next node is in the same list.
            self.next = unsafe { (*node).next };
            // SAFETY: By the type invariants `node` is a live event's `sibling_list`.
            let sibling = unsafe { container_of!(node, bindings::perf_event, sibling_list) };
            // SAFETY: The sibling is live by the type invariants.
            if let Some(sibling) = unsafe { self.member.if_same_pmu(sibling) } {
                return Some(sibling);
            }
        }
        None
    }
}

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
/// The value is a live `struct perf_event`, which a hardware PMU is opening or has opened. It is in
/// the hands of one of the PMU's callbacks, so perf core has not revoked it (and set `pmu` to
/// null).
#[repr(transparent)]
pub(crate) struct PerfEvent(Opaque<bindings::perf_event>);

impl PerfEvent {
    /// Makes a reference of perf core's pointer.
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

    /// The event's number, by which it is told from all others that were ever opened (`id`).
    #[inline]
    pub(crate) fn id(&self) -> u64 {
        // SAFETY: Valid by the type invariants; perf core wrote it before its first callback.
        unsafe { (*self.as_raw()).id }
    }

    /// The PMU, registered as long as the reference lives.
    pub(super) fn pmu(&self) -> *mut bindings::pmu {
        // SAFETY: Valid by the type invariants; perf core wrote it before its first callback.
        unsafe { (*self.as_raw()).pmu }
    }

    /// What user space asked for.
    pub(crate) fn attr(&self) -> &Attr {
        // SAFETY: Valid by the type invariants.
        let attr = unsafe { &raw const (*self.as_raw()).attr };
        // SAFETY: The attributes live in the event; `Attr` is transparent over them.
        unsafe { &*attr.cast() }
    }

    /// The event's counting and sampling state, for reading.
    pub(crate) fn hw(&self) -> &Hw {
        // SAFETY: Valid by the type invariants.
        let hw = unsafe { &raw const (*self.as_raw()).hw };
        // SAFETY: The data live in the event; `Hw` is transparent over them.
        unsafe { &*hw.cast() }
    }

    /// Returns the event's counting and sampling state, for changing. The event must be on the CPU
    /// that this runs on, or be added to it or deleted from it. The result borrows the proof, too,
    /// so it ends before interrupts are on.
    #[inline]
    pub(crate) fn hw_mut<'a>(&'a self, _irqs_off: &'a IrqsOff<'_>) -> HwMut<'a> {
        HwMut::new(self)
    }

    /// Whether the event follows a task rather than a CPU.
    pub(crate) fn follows_task(&self) -> bool {
        // SAFETY: Valid by the type invariants. perf core sets this bit before its first callback,
        // others at any time.
        let state = unsafe { (&raw const (*self.as_raw()).attach_state).read_volatile() };
        state & bindings::PERF_ATTACH_TASK != 0
    }

    /// Returns `other` if it belongs to the same PMU and the same driver: another one, which shares
    /// the PMU, gives its events no data.
    ///
    /// # Safety
    ///
    /// `other` must be live for the lifetime `'a`, and its PMU must not go in that time. If it is
    /// the same PMU, `other` was accepted there, with data of type `D` if it has any.
    unsafe fn if_same_pmu<'a, D>(&self, other: *mut bindings::perf_event) -> Option<&'a Event<D>> {
        // SAFETY: The caller guarantees a live event.
        let (pmu, data) = unsafe { ((*other).pmu, (*other).pmu_private) };
        let is_same = self.pmu() == pmu && !data.is_null();
        // SAFETY: The caller guarantees a live event, and its PMU is a hardware PMU.
        is_same.then(|| unsafe { Event::from_raw(other) })
    }

    /// Whether both events follow the same task, or both the same CPU.
    pub(crate) fn shares_context(&self, other: &PerfEvent) -> bool {
        // SAFETY: Both are live by the type invariants; perf core sets the context before an event
        // first comes to a CPU and does not change it while it is on one.
        unsafe { (*self.as_raw()).ctx == (*other.as_raw()).ctx }
    }

    /// Whether both are the same event.
    pub(crate) fn is(&self, other: &PerfEvent) -> bool {
        core::ptr::eq(self, other)
    }

    /// Whether the event's owner has disabled it. The owner may enable it at any time.
    pub(crate) fn is_off(&self) -> bool {
        // SAFETY: Valid by the type invariants.
        let state = unsafe { (&raw const (*self.as_raw()).state).read_volatile() };
        state == bindings::perf_event_state_PERF_EVENT_STATE_OFF
    }

    /// The event's count, which perf core reads at any time, on other CPUs too.
    pub(super) fn count(&self) -> &Local64 {
        // SAFETY: Valid by the type invariants.
        let field = unsafe { &raw mut (*self.as_raw()).count };
        // SAFETY: The field is a `local64_t` that lives as long as `self`. CAST: On 64-bit machines
        // that is a `long`.
        unsafe { Local64::from_raw(field.cast()) }
    }

    /// Counts samples that had to be dropped. User space reads the number in the event that it
    /// opened, so samples of an inherited event count there.
    pub(crate) fn count_lost_samples(&self, samples: u64) {
        // SAFETY: Valid by the type invariants; perf core wrote the field before its first
        // callback.
        let parent = unsafe { (*self.as_raw()).parent };
        let event = if parent.is_null() {
            self.as_raw()
        } else {
            parent
        };
        // SAFETY: Valid by the type invariants, or the parent, which perf core keeps for as long as
        // the event that inherited it.
        let field = unsafe { &raw mut (*event).lost_samples };
        // SAFETY: The field lives as long as `self`, is aligned, and is only accessed atomically
        // (`atomic64_t`). CAST: `atomic64_t` is a structure of one `s64`.
        let lost: &Atomic<i64> = unsafe { Atomic::from_ptr(field.cast()) };
        // CAST: A number of samples.
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
    /// Makes a reference of perf core's pointer.
    ///
    /// # Safety
    ///
    /// `ptr` must satisfy the type invariants, and those of [`PerfEvent`], for the lifetime `'a`.
    pub(super) unsafe fn from_raw<'a>(ptr: *mut bindings::perf_event) -> &'a Self {
        // SAFETY: The caller guarantees a live event; the type is transparent over it.
        unsafe { &*ptr.cast() }
    }

    /// Returns what the driver keeps with the event.
    #[inline]
    pub(crate) fn data(&self) -> &D {
        // SAFETY: Valid by the type invariants; the field does not change while the event lives.
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
    /// # Safety
    ///
    /// `ptr` must be what perf core gave to `event_init`, which must not return before `'a` ends.
    /// The events that its PMU has accepted have data of type `D`.
    pub(super) unsafe fn from_raw(ptr: *mut bindings::perf_event) -> Self {
        // SAFETY: The caller guarantees a live event. INVARIANT: The caller guarantees that it is
        // in `event_init`.
        Self(unsafe { PerfEvent::from_raw(ptr) }, PhantomData)
    }

    /// The leader of the event's group, maybe the event itself.
    fn raw_leader(&self) -> *mut bindings::perf_event {
        // SAFETY: Valid by the type invariants; perf core wrote it before the callback.
        unsafe { (*self.0.as_raw()).group_leader }
    }

    /// Whether the event opens a group.
    #[inline]
    pub(crate) fn leads(&self) -> bool {
        self.raw_leader() == self.0.as_raw()
    }

    /// Returns the leader of the event's group; `None` when that is the event itself, or an event
    /// of another PMU, such as a software event.
    pub(crate) fn leader(&self) -> Option<&'a Event<D>> {
        if self.leads() {
            return None;
        }
        // SAFETY: perf core holds the leader while it opens a member. It was accepted before.
        unsafe { self.0.if_same_pmu(self.raw_leader()) }
    }

    /// The members that the event's group has so far on the same PMU, the leader first, without the
    /// event itself. Empty for an event that opens a group.
    pub(crate) fn group(&self) -> Group<'a, D> {
        // SAFETY: perf core holds the leader. By the type invariants the group is stable.
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

/// Iterator over those events of a context that are on the same PMU as one of it.
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

/// Iterator over those events of a group that are on the same PMU as one of it, the leader first.
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
    /// The group of `member`.
    ///
    /// # Safety
    ///
    /// The group must neither change nor go for the lifetime `'a`.
    pub(super) unsafe fn of(member: &'a PerfEvent) -> Self {
        // SAFETY: The event is live; perf core wrote the leader before the first callback.
        let leader = unsafe { (*member.as_raw()).group_leader };
        // SAFETY: The caller guarantees a live leader; perf core initialised the head of its list.
        let (head, leads) = unsafe {
            let leads = (*leader).group_leader == leader;
            (&raw mut (*leader).sibling_list, leads)
        };
        // INVARIANT: The caller guarantees that all events of the list are live. A new event may
        // name a member as its leader, which perf core refuses only after `event_init`: what would
        // be the head is a node then.
        Self {
            member,
            leader: Some(leader),
            // SAFETY: As above.
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
            // SAFETY: Live by the type invariants.
            if let Some(leader) = unsafe { self.member.if_same_pmu(leader) } {
                return Some(leader);
            }
        }
        while self.next != self.head {
            let node = self.next;
            // SAFETY: By the type invariants `node` is in the list. INVARIANT: so is the next one.
            self.next = unsafe { (*node).next };
            // SAFETY: By the type invariants `node` is a live event's `sibling_list`.
            let sibling = unsafe { container_of!(node, bindings::perf_event, sibling_list) };
            // SAFETY: As above.
            if let Some(sibling) = unsafe { self.member.if_same_pmu(sibling) } {
                return Some(sibling);
            }
        }
        None
    }
}

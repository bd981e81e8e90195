// SPDX-License-Identifier: GPL-2.0

//! An event of perf core.

use crate::{history::oracle::Counts, machine::with_machine, perf_bindings::*};
use kernel::{bindings::list_head, zeroed};
use pmu_model::{Context, Isa};
use std::{
    cell::{Cell, RefCell, UnsafeCell},
    ptr::null_mut,
    rc::Rc,
};

/// The compared parts of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The address that the sample shows.
    pub ip: u64,
    /// The period that it stands for.
    pub period: u64,
    /// The address of the interrupted instruction in the registers that perf core got.
    pub nip: u64,
    /// Whether these registers are those of a program.
    pub user: bool,
    /// The data address, if the sample has it.
    pub addr: Option<u64>,
    /// The source of the data, and the weight, if the sample has them.
    pub data_src: Option<u64>,
    pub weight: Option<u64>,
}

/// An event.
pub struct Event {
    raw: UnsafeCell<perf_event>,
    /// The index of the event in [`PerfCore::all`](super::PerfCore::all).
    pub id: usize,
    /// The task that it follows. A swap of contexts changes it.
    pub task: Cell<Option<usize>>,
    /// The tasks that it followed before.
    pub(super) followed: RefCell<Vec<usize>>,
    /// The CPU to which the event is bound.
    pub cpu: Option<usize>,
    /// The event from which this event was inherited.
    pub parent: Option<Rc<Event>>,
    /// The CPU that the event is on.
    pub oncpu: Cell<Option<usize>>,
    pub group: RefCell<Vec<Rc<Event>>>,
    pub closed: Cell<bool>,
    pub samples: RefCell<Vec<Recorded>>,
    /// The branch stack of the last sample.
    pub branches: Cell<Option<Vec<perf_branch_entry>>>,
    /// The event's count in the kernel.
    pub in_kernel: Cell<u64>,
    /// The length and the remainder of the present period.
    pub(super) period: Cell<(u64, i64)>,
    /// The period is longer than the event requests, and samples are lost: see
    /// [`Event::throttle`].
    pub(super) is_throttled: Cell<bool>,
    /// The time of its last sample while PM interrupts overloaded the kernel, in ticks of the time
    /// base.
    pub(super) overflow_time: Cell<u64>,
    /// The number of samples that the driver must have counted as lost.
    pub lost: Cell<u64>,
}

impl Event {
    /// Creates an event that leads its group until it joins another one.
    pub fn new(
        id: usize,
        pmu: *mut pmu,
        attr: perf_event_attr,
        (task, cpu): (Option<usize>, Option<usize>),
        parent: Option<Rc<Self>>,
    ) -> Rc<Self> {
        let mut raw: perf_event = zeroed();
        raw.id = (id as u64).wrapping_add(1);
        raw.pmu = pmu;
        raw.attr = attr;
        raw.parent = parent.as_ref().map_or(null_mut(), |parent| parent.raw());
        raw.hw.sample_period = attr.__bindgen_anon_1.sample_period;
        raw.hw.__bindgen_anon_2.__bindgen_anon_1 = hw_perf_event__bindgen_ty_2__bindgen_ty_1 {
            last_period: raw.hw.sample_period,
            period_left: raw.hw.sample_period as i64,
        };
        // As in the kernel, a disabled event starts in the state OFF.
        raw.state = if attr.flags & 1 != 0 {
            perf_event_state_PERF_EVENT_STATE_OFF
        } else {
            perf_event_state_PERF_EVENT_STATE_INACTIVE
        };
        raw.attach_state = if task.is_some() { PERF_ATTACH_TASK } else { 0 };
        let event = Rc::new(Self {
            raw: UnsafeCell::new(raw),
            id,
            task: Cell::new(task),
            followed: RefCell::default(),
            cpu,
            parent,
            oncpu: Cell::new(None),
            group: RefCell::default(),
            closed: Cell::new(false),
            samples: RefCell::default(),
            branches: Cell::default(),
            in_kernel: Cell::new(0),
            period: Cell::default(),
            is_throttled: Cell::default(),
            overflow_time: Cell::default(),
            lost: Cell::new(0),
        });
        event.begin_period(attr.__bindgen_anon_1.sample_period);
        // SAFETY: The structure is alive, and no other code refers to it yet.
        unsafe {
            let raw = event.raw();
            (*raw).core = Rc::as_ptr(&event);
            (*raw).group_leader = raw;
            let head = &raw mut (*raw).sibling_list;
            *head = list_head {
                next: head,
                prev: head,
            };
        }
        event
    }

    /// Returns the C structure.
    pub fn raw(&self) -> *mut perf_event {
        self.raw.get()
    }

    /// Returns the event of a C structure.
    ///
    /// # Safety
    ///
    /// The structure must belong to an [`Event::new`] that is still alive.
    pub unsafe fn from_raw<'a>(raw: *mut perf_event) -> &'a Self {
        // SAFETY: The caller guarantees that the event is alive, and `Event::new` has set `core`.
        unsafe { &*(*raw).core }
    }

    pub fn attr(&self) -> &perf_event_attr {
        // SAFETY: The attributes are alive. Only their period changes, and not while a reference is
        // used.
        unsafe { &(*self.raw()).attr }
    }

    pub fn state(&self) -> i32 {
        // SAFETY: The structure belongs to `self`.
        unsafe { (*self.raw()).state }
    }

    pub fn set_state(&self, state: i32) {
        // SAFETY: The structure belongs to `self`.
        unsafe { (*self.raw()).state = state };
    }

    pub fn is_active(&self) -> bool {
        self.state() == perf_event_state_PERF_EVENT_STATE_ACTIVE
    }

    pub fn is_leader(&self) -> bool {
        // SAFETY: The structure belongs to `self`.
        unsafe { (*self.raw()).group_leader == self.raw() }
    }

    /// Returns the present number of occurrences between two samples.
    pub fn sample_period(&self) -> u64 {
        // SAFETY: The structure belongs to `self`.
        unsafe { (*self.raw()).hw.sample_period }
    }

    /// Begins a period of this length.
    pub fn begin_period(&self, length: u64) {
        self.period.set((length, length as i64));
        self.is_throttled.set(false);
    }

    /// Returns the overflows in this tick, or `u64::MAX` for an event that is throttled.
    pub fn interrupts(&self) -> u64 {
        // SAFETY: The structure belongs to `self`.
        unsafe { (*self.raw()).hw.interrupts }
    }

    pub fn set_interrupts(&self, interrupts: u64) {
        // SAFETY: The structure belongs to `self`.
        unsafe { (*self.raw()).hw.interrupts = interrupts };
    }

    /// Counts lost samples. Those of an inherited event count for the event that the program
    /// opened.
    pub fn lose(&self, samples: u64) {
        let owner = self.parent.as_deref().unwrap_or(self);
        owner.lost.set(owner.lost.get() + samples);
    }

    /// Counts occurrences of the event in the present period.
    pub fn occurred(&self, count: u64) {
        self.check_throttling();
        let (length, left) = self.period.get();
        self.period.set((length, left - count as i64));
    }

    /// Returns the length of the present period as the driver has set it.
    pub fn last_period(&self) -> u64 {
        // SAFETY: The structure belongs to `self`, and this member of the union is the one in use.
        let sampling = unsafe { &(*self.raw()).hw.__bindgen_anon_2.__bindgen_anon_1 };
        sampling.last_period
    }

    /// Returns the remainder of the period, which is 0 or less if its sample is due.
    pub fn left(&self) -> i64 {
        self.period.get().1
    }

    /// Ends the period with a sample, and all periods that have ended after it without one. Returns
    /// their total length, or `None` if the period is not over.
    pub fn end_period(&self) -> Option<u64> {
        let (length, mut left) = self.period.get();
        if left > 0 {
            return None;
        }
        let next = self.sample_period();
        if self.is_throttled.take() {
            self.lose((length / next).saturating_sub(1));
        }
        let mut ended = length;
        left += next as i64;
        while left <= 0 {
            left += next as i64;
            ended += next;
        }
        self.period.set((next, left));
        Some(ended)
    }

    /// Returns whether the event's samples have this format, a bit of `PERF_SAMPLE_*`.
    pub fn samples_with(&self, format: u32) -> bool {
        self.attr().sample_type & u64::from(format) != 0
    }

    pub(super) fn flag(&self, flag: unsafe fn(*const perf_event_attr) -> u64) -> bool {
        // SAFETY: The attributes are alive.
        unsafe { flag(self.attr()) != 0 }
    }

    pub fn is_pinned(&self) -> bool {
        self.flag(perf_event_attr::pinned_raw)
    }

    pub fn is_exclusive(&self) -> bool {
        self.flag(perf_event_attr::exclusive_raw)
    }

    pub fn is_inherited(&self) -> bool {
        self.flag(perf_event_attr::inherit_raw)
    }

    pub fn excludes_kernel(&self) -> bool {
        self.flag(perf_event_attr::exclude_kernel_raw)
    }

    pub fn excludes_user(&self) -> bool {
        self.flag(perf_event_attr::exclude_user_raw)
    }

    pub fn excludes_hv(&self) -> bool {
        self.flag(perf_event_attr::exclude_hv_raw)
    }

    pub fn excludes_idle(&self) -> bool {
        self.flag(perf_event_attr::exclude_idle_raw)
    }

    pub fn excludes_host(&self) -> bool {
        self.flag(perf_event_attr::exclude_host_raw)
    }

    /// Returns whether the event counts instructions of the kernel, or of the hypervisor, in a
    /// state.
    ///
    /// On bare metal the kernel is the hypervisor. In a partition `exclude_kernel` does not exclude
    /// the hypervisor. But before v3.1 it does for EBB events and for events with branch stacks of
    /// programs, because branches are recorded wherever the event counts
    /// (`Documentation/internals.md`, Limitations).
    pub fn counts_in(&self, context: Context) -> bool {
        let (kind, code) = (with_machine(|machine| machine.kind), self.attr().config);
        let v31 = kind.processor.isa() >= Isa::V31;
        let stack = self.samples_with(perf_event_sample_format_PERF_SAMPLE_BRANCH_STACK);
        let records = !v31 && (code >> 63 != 0 || stack && !self.excludes_user());
        let is_excluded = if context.hypervisor && !kind.hypervisor {
            self.excludes_hv() || self.excludes_kernel() && records
        } else {
            self.excludes_kernel()
        };
        let needs_run_latch = Counts::needs_run_latch(kind.processor, code & !(0b1111 << 60));
        !is_excluded && (context.run || !self.excludes_idle() && !needs_run_latch)
    }

    /// Returns whether the event's samples may show a data address. For an event that follows a
    /// task, it may be one of the task's programs, or one of the kernel unless the event excludes
    /// that. Tasks that swap contexts have inherited the same events, whose owner may see the data
    /// of all these tasks.
    pub fn may_show(&self, data: u64) -> bool {
        let Some(task) = self.task.get() else {
            return true;
        };
        let is_kernel = data >> 63 != 0;
        let (core, followed) = (super::PerfCore::get(), self.followed.borrow());
        let mut tasks = followed.iter().chain([&task]);
        let is_own = data == 0 || tasks.any(|task| core.task(*task).owns(data));
        if is_kernel {
            !self.excludes_kernel()
        } else {
            is_own
        }
    }

    /// Returns the leader of the group.
    pub fn leader(&self) -> &Self {
        // SAFETY: The leader lives as long as its group.
        unsafe { Self::from_raw((*self.raw()).group_leader) }
    }

    /// Returns the count at the last update.
    pub fn count(&self) -> u64 {
        // SAFETY: The structure belongs to `self`.
        unsafe { (*self.raw()).count as u64 }
    }

    pub fn lost_samples(&self) -> u64 {
        // SAFETY: The structure belongs to `self`.
        unsafe { (*self.raw()).lost_samples as u64 }
    }

    /// Returns the number of the event's counter, or 0 for none.
    pub fn idx(&self) -> usize {
        // SAFETY: The structure belongs to `self`, and this member of the union is the one in use.
        unsafe { (*self.raw()).hw.__bindgen_anon_1.__bindgen_anon_1.idx as usize }
    }

    /// Returns whether the counter is not stopped.
    pub fn counter_runs(&self) -> bool {
        // SAFETY: The structure belongs to `self`.
        unsafe { (*self.raw()).hw.state == 0 }
    }

    /// Returns the counter's value at the last update of the count.
    pub fn prev_count(&self) -> u32 {
        // SAFETY: The structure belongs to `self`.
        unsafe { (*self.raw()).hw.prev_count as u32 }
    }

    /// Joins the group of `leader`, as its last member (`perf_group_attach()`).
    pub fn join(self: &Rc<Self>, leader: &Rc<Self>) {
        leader.group.borrow_mut().push(self.clone());
        self.link(leader);
    }

    fn link(&self, leader: &Self) {
        // SAFETY: Both structures are alive, and so are the members of the list.
        unsafe {
            let (raw, head) = (self.raw(), &raw mut (*leader.raw()).sibling_list);
            (*raw).group_leader = leader.raw();
            let own = &raw mut (*raw).sibling_list;
            let last = (*head).prev;
            *own = list_head {
                next: head,
                prev: last,
            };
            (*last).next = own;
            (*head).prev = own;
        }
    }

    fn unlink(&self) {
        // SAFETY: The structure and the members of both lists are alive.
        unsafe {
            let raw = self.raw();
            let own = &raw mut (*raw).sibling_list;
            (*(*own).prev).next = (*own).next;
            (*(*own).next).prev = (*own).prev;
            *own = list_head {
                next: own,
                prev: own,
            };
            (*raw).group_leader = raw;
        }
    }

    /// Leaves the group. If the event is the leader, each member becomes a leader
    /// (`perf_group_detach()`).
    pub fn detach(&self) {
        if self.is_leader() {
            for member in self.group.take() {
                member.unlink();
            }
        } else {
            let leader = self.leader();
            leader
                .group
                .borrow_mut()
                .retain(|member| member.id != self.id);
            self.unlink();
        }
    }
}

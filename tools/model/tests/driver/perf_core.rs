// SPDX-License-Identifier: GPL-2.0

//! perf core: contexts of tasks and CPUs, groups, and the order in which the PMU's callbacks are
//! called.
//!
//! It follows Linux 7.3, `kernel/events/core.c`, and uses the names of the functions there. It has
//! only what the driver can observe: no times, no cgroups, no mappings, and no timer for rotation
//! (a history contains explicit rotations).
//!
//! | file | subject |
//! |---|---|
//! | `event.rs` | an event, and its samples |
//! | `sched.rs` | scheduling events in and out |
//! | `task.rs` | switches, `fork`, `execve`, CPU hotplug |
//! | `ops.rs` | what programs ask for: open, close, read, ioctl |
//! | `clones.rs` | tasks whose contexts are clones, and swaps of these contexts |
//! | `calls.rs` | the functions that the driver calls |
//! | `built_in.rs` | the driver that is built into the kernel |
//! | `overload.rs` | which periods PM interrupts that overload the kernel make longer |

pub mod built_in;
pub mod calls;
mod clones;
mod event;
mod ops;
mod overload;
mod sched;
mod task;

pub use clones::Swap;
pub use event::{Event, Recorded};
pub use task::Task;

use crate::{
    history::oracle::Counts,
    machine::ensure,
    perf_bindings::{perf_event_context, pmu},
};
use clones::Lineage;
use kernel::{bindings::list_head, cpu::CPUS};
use overload::PmiTime;
use pmu_model::Instruction;
use std::{
    cell::{Cell, RefCell, UnsafeCell},
    ptr::null_mut,
    rc::Rc,
};

/// The groups of a task or of a CPU.
pub struct Context {
    /// All events, leaders and members, in the order in which they were installed.
    pub events: RefCell<Vec<Rc<Event>>>,
    /// The kinds of groups that are scheduled: `EVENT_PINNED`, `EVENT_FLEXIBLE`.
    is_active: Cell<u8>,
    /// The identity of the context, and of the one that it was cloned from.
    lineage: Cell<Lineage>,
    /// The C structure, with the list of these events.
    raw: RefCell<Box<UnsafeCell<perf_event_context>>>,
}

impl Default for Context {
    fn default() -> Self {
        let raw = Box::new(UnsafeCell::new(perf_event_context {
            event_list: list_head {
                next: null_mut(),
                prev: null_mut(),
            },
        }));
        // SAFETY: The list is new, so no other code refers to it.
        unsafe { init_list_head(&raw mut (*raw.get()).event_list) };
        Self {
            events: RefCell::default(),
            is_active: Cell::default(),
            lineage: Cell::default(),
            raw: RefCell::new(raw),
        }
    }
}

/// Makes a list empty, or an entry part of no list.
///
/// # Safety
///
/// The pointer must be valid, and no other entry may refer to it.
unsafe fn init_list_head(list: *mut list_head) {
    // SAFETY: The caller guarantees a valid pointer, and that no other entry refers to the target.
    unsafe {
        *list = list_head {
            next: list,
            prev: list,
        };
    }
}

impl Context {
    /// Adds an event (`list_add_event()`).
    fn add(&self, event: &Rc<Event>) {
        self.events.borrow_mut().push(event.clone());
        self.change();
        let (raw, event) = (self.raw.borrow().get(), event.raw());
        // SAFETY: The context and the events in its list are alive.
        unsafe {
            (*event).ctx = raw;
            let (entry, head) = (&raw mut (*event).event_entry, &raw mut (*raw).event_list);
            let first = (*head).next;
            *entry = list_head {
                next: first,
                prev: head,
            };
            (*first).prev = entry;
            (*head).next = entry;
        }
    }

    /// Removes an event, if it is there (`list_del_event()`).
    fn remove(&self, event: &Event) {
        let mut events = self.events.borrow_mut();
        let before = events.len();
        events.retain(|other| other.id != event.id);
        if events.len() < before {
            self.unclone();
            // SAFETY: The event is in the list, whose entries are alive.
            unsafe {
                let entry = &raw mut (*event.raw()).event_entry;
                (*(*entry).prev).next = (*entry).next;
                (*(*entry).next).prev = (*entry).prev;
                init_list_head(entry);
            }
        }
    }

    /// Moves the first flexible group to the end.
    fn rotate(&self) {
        if let [first, ..] = self.leaders(false).as_slice() {
            let mut events = self.events.borrow_mut();
            events.retain(|event| event.id != first.id);
            events.push(first.clone());
        }
    }

    /// Returns the leaders of the pinned groups, or of the flexible ones.
    fn leaders(&self, pinned: bool) -> Vec<Rc<Event>> {
        let events = self.events.borrow();
        let leads = |event: &&Rc<Event>| event.is_leader() && event.is_pinned() == pinned;
        events.iter().filter(leads).cloned().collect()
    }
}

/// The data of perf core for a CPU.
#[derive(Default)]
struct CpuContext {
    ctx: Context,
    /// `task_ctx`: the task whose context is scheduled.
    task: Cell<Option<usize>>,
    /// The CPU's events belong to a cgroup that its task is not in.
    is_of_others: Cell<bool>,
    exclusive: Cell<bool>,
    active_oncpu: Cell<u32>,
    disable_count: Cell<u32>,
    sched_cb_usage: Cell<u32>,
    pmi_time: PmiTime,
}

/// The state of perf core.
pub struct PerfCore {
    pmu: Cell<*mut pmu>,
    cpus: [CpuContext; CPUS as usize],
    pub tasks: RefCell<Vec<Rc<Task>>>,
    /// The task that each CPU runs; `None` when it idles.
    pub running: [Cell<Option<usize>>; CPUS as usize],
    pub online: [Cell<bool>; CPUS as usize],
    /// All events that were ever opened.
    pub all: RefCell<Vec<Rc<Event>>>,
    /// The counts of PMC5 and PMC6 of each CPU in the kernel since they were last read.
    fixed_in_kernel: [Cell<[u64; 2]>; CPUS as usize],
    /// Samples in a tick after which a group is throttled.
    pub max_samples_per_tick: Cell<u32>,
    /// A sample was taken in an interrupt of which perf core has not learned how long it took.
    pub untimed: Cell<bool>,
}

thread_local! {
    static CORE: RefCell<Rc<PerfCore>> = RefCell::new(Rc::new(PerfCore::new()));
}

impl PerfCore {
    fn new() -> Self {
        Self {
            pmu: Cell::new(null_mut()),
            cpus: Default::default(),
            tasks: RefCell::default(),
            running: Default::default(),
            online: std::array::from_fn(|_| Cell::new(true)),
            all: RefCell::default(),
            fixed_in_kernel: Default::default(),
            max_samples_per_tick: Cell::new(u32::MAX),
            untimed: Cell::new(false),
        }
    }

    /// Resets perf core.
    pub fn restart() -> Rc<Self> {
        CORE.set(Rc::new(Self::new()));
        Self::get()
    }

    /// Switches to the PMU of the driver that is built into the kernel, whose actions depend on
    /// this seed.
    pub fn use_built_in(&self, seed: u64) {
        built_in::restart(seed);
        calls::restart_module();
        self.pmu.set(calls::built_in());
    }

    /// Returns whether the PMU is that of the built-in driver.
    pub fn has_built_in(&self) -> bool {
        self.pmu.get() == calls::built_in()
    }

    /// Returns perf core's state of this thread.
    pub fn get() -> Rc<Self> {
        CORE.with_borrow(Rc::clone)
    }

    /// Returns the number of events on a CPU for which perf core has a branch stack in use.
    pub fn sched_cb_usage(&self, cpu: usize) -> u32 {
        self.cpus[cpu].sched_cb_usage.get()
    }

    /// Counts an instruction of the kernel, or of the hypervisor, for this CPU's events. The
    /// counters of events that include the place must have counted what the events select, the
    /// others nothing.
    pub fn count_in_kernel(
        &self,
        counted: &[u32; 6],
        instruction: &Instruction,
        context: pmu_model::Context,
    ) {
        let here = kernel::cpu::CpuId::current().as_u32() as usize;
        let [pmc5, pmc6] = self.fixed_in_kernel[here].get();
        let more = [pmc5 + u64::from(counted[4]), pmc6 + u64::from(counted[5])];
        self.fixed_in_kernel[here].set(more);
        for event in self.all.borrow().iter() {
            if event.oncpu.get() == Some(here) && event.idx() > 0 && event.counter_runs() {
                let more: u64 = counted[event.idx() - 1].into();
                let expected = if event.counts_in(context) {
                    Counts::of(event).occurrences(instruction)
                } else {
                    0
                };
                ensure(more == expected, || {
                    format!(
                        "event {} counts {more} in the kernel, not {expected}",
                        event.id
                    )
                });
                event.in_kernel.set(event.in_kernel.get() + more);
                event.occurred(more);
            }
        }
    }

    /// Returns whether the PMU of this CPU is disabled.
    pub fn is_disabled(&self) -> bool {
        self.cpu().disable_count.get() > 0
    }

    /// Returns whether an event is on a counter of this CPU. Returns true if no event is on any.
    pub fn has_event(&self, number: usize) -> bool {
        let here = kernel::cpu::CpuId::current().as_u32() as usize;
        let all = self.all.borrow();
        let mut on = all
            .iter()
            .filter(|event| event.oncpu.get() == Some(here))
            .peekable();
        on.peek().is_none() || on.any(|event| event.idx() == number)
    }

    /// Returns whether an event is on the PMU of a CPU.
    pub fn has_events(&self, cpu: usize) -> bool {
        let all = self.all.borrow();
        all.iter().any(|event| event.oncpu.get() == Some(cpu))
    }

    /// Returns the counts of PMC5 and PMC6 of a CPU in the kernel since the last call.
    pub fn take_fixed_in_kernel(&self, cpu: usize) -> [u64; 2] {
        self.fixed_in_kernel[cpu].take()
    }

    /// Returns the address where the program of this CPU continues when the kernel returns to it.
    pub fn program_nip(&self) -> Option<u64> {
        let here = kernel::cpu::CpuId::current().as_u32() as usize;
        let task = self.running[here].get()?;
        Some(self.tasks.borrow()[task].nip.get())
    }

    fn cpu(&self) -> &CpuContext {
        &self.cpus[kernel::cpu::CpuId::current().as_u32() as usize]
    }

    /// Calls `f` with the context of a task, or of a CPU.
    fn context<R>(&self, task: Option<usize>, cpu: usize, f: impl FnOnce(&Context) -> R) -> R {
        match task {
            Some(task) => {
                let task = self.tasks.borrow()[task].clone();
                f(&task.ctx)
            }
            None => f(&self.cpus[cpu].ctx),
        }
    }
}

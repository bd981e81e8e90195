// SPDX-License-Identifier: GPL-2.0

//! Tasks: they run on CPUs, fork, exec and exit; and CPUs come and go.

use super::{
    Context, Event, PerfCore, Swap, built_in,
    sched::{EVENT_ALL, EVENT_FLEXIBLE, call},
};
use crate::{
    machine::{self, MSR_PR, irqs_off, switch_to, with_cpu},
    perf_bindings::*,
};
use kernel::bindings::{get_current, mm_struct, pt_regs, set_current, task_struct};
use pmu_model::spr;
use std::{
    cell::{Cell, UnsafeCell},
    rc::Rc,
};

/// Where the first program begins. Each has a megabyte, and `execve` gives it another.
const TEXT: u64 = 0x1000;
const PROGRAM: u64 = 1 << 20;

/// Where the data of the first task are. Each has this much for all its programs, each of which has
/// a megabyte.
const DATA: u64 = 1 << 28;

/// A task with a program.
pub struct Task {
    number: u64,
    raw: UnsafeCell<task_struct>,
    regs: UnsafeCell<pt_regs>,
    pub ctx: Context,
    /// Where the program goes on.
    pub nip: Cell<u64>,
}

/// Any address: a task with a program has memory.
static MM: mm_struct = mm_struct;

impl Task {
    /// A task. What a parent had is gone but for MMCR3, SIER2 and SIER3 (`clear_task_ebb()`).
    pub fn new(number: u64, parent: Option<&Self>) -> Rc<Self> {
        let mut raw = match parent {
            // SAFETY: Nobody changes it meanwhile.
            Some(parent) => unsafe { *parent.raw() },
            None => task_struct::default(),
        };
        raw.mm = (&raw const MM).cast_mut();
        let before = std::mem::replace(&mut raw.thread, task_struct::default().thread);
        (raw.thread.mmcr3, raw.thread.sier2) = (before.mmcr3, before.sier2);
        raw.thread.sier3 = before.sier3;
        let task = Rc::new(Self {
            number,
            raw: UnsafeCell::new(raw),
            regs: UnsafeCell::default(),
            ctx: Context::default(),
            nip: Cell::new(parent.map_or(TEXT + number * PROGRAM, |parent| parent.nip.get())),
        });
        task.save_regs();
        task
    }

    pub fn raw(&self) -> *mut task_struct {
        self.raw.get()
    }

    /// Where the data of its program are, which are nobody else's.
    pub fn data(&self) -> u64 {
        // SAFETY: Nobody changes it meanwhile.
        let programs = unsafe { (*self.raw()).self_exec_id };
        DATA * (self.number + 1) + programs % 0x100 * PROGRAM
    }

    /// Whether an address is that of data of one of its programs.
    pub fn owns(&self, data: u64) -> bool {
        data / DATA == self.number + 1
    }

    /// The registers with which its program is in the kernel.
    fn save_regs(&self) {
        let mut regs = pt_regs::default();
        let named = &mut regs.__bindgen_anon_1.__bindgen_anon_1;
        (named.nip, named.msr) = (self.nip.get() as usize, MSR_PR as usize);
        // SAFETY: The task is there, and nobody has a reference.
        unsafe {
            *self.regs.get() = regs;
            (*self.raw()).thread.regs = self.regs.get();
        }
    }
}

/// The registers that `__switch_to()` saves and restores.
const EBB_REGISTERS: [u32; 3] = [spr::BESCR, spr::EBBHR, spr::EBBRR];

impl PerfCore {
    pub fn task(&self, task: usize) -> Rc<Task> {
        self.tasks.borrow()[task].clone()
    }

    /// The test goes on with this CPU and the task that runs there.
    pub fn run_on(&self, cpu: usize) {
        switch_to(cpu as u32);
        let task = self.running[cpu].get();
        set_current(task.map_or(std::ptr::null_mut(), |task| self.task(task).raw()));
    }

    /// The program on this CPU enters the kernel.
    pub fn enter_kernel(&self, cpu: usize) {
        self.run_on(cpu);
        let nip = with_cpu(|cpu| {
            cpu.facility.context.problem = false;
            cpu.nip
        });
        if let Some(task) = self.running[cpu].get() {
            let task = self.task(task);
            task.nip.set(nip);
            task.save_regs();
        }
    }

    /// It goes on. Returns whether it goes on in its handler.
    pub fn leave_kernel(&self, cpu: usize) -> bool {
        self.run_on(cpu);
        with_cpu(|cpu| cpu.facility.synchronize());
        machine::take_interrupt();
        let Some(task) = self.running[cpu].get() else {
            return false;
        };
        let nip = self.task(task).nip.get();
        with_cpu(|cpu| {
            cpu.nip = cpu.facility.enter_problem_state(nip);
            cpu.nip != nip
        })
    }

    /// The CPU, which is in the kernel, runs another task from now on; `None` is the idle task.
    pub fn switch(&self, cpu: usize, next: Option<usize>) -> Swap {
        self.run_on(cpu);
        let prev = self.running[cpu].get();
        let mut swap = Swap::default();
        if prev == next {
            return swap;
        }
        irqs_off(|| {
            if let Some(prev) = prev {
                self.perf_pmu_sched_task(false);
                swap = self.perf_event_context_sched_out(prev, next);
                let prev = self.task(prev);
                // SAFETY: The task is there.
                let thread = unsafe { &mut (*prev.raw()).thread };
                let saved = with_cpu(|cpu| EBB_REGISTERS.map(|number| cpu.facility.mfspr(number)));
                [thread.bescr, thread.ebbhr, thread.ebbrr] = saved.map(|value| value as usize);
            } else {
                self.perf_pmu_sched_task(false);
            }
            self.running[cpu].set(next);
            set_current(std::ptr::null_mut());
            if let Some(next) = next {
                let next = self.task(next);
                set_current(next.raw());
                // SAFETY: As above.
                let thread = unsafe { (*next.raw()).thread };
                let values = [thread.bescr, thread.ebbhr, thread.ebbrr];
                with_cpu(|cpu| {
                    for (number, value) in EBB_REGISTERS.into_iter().zip(values) {
                        cpu.facility.mtspr(number, value as u64);
                    }
                });
            }
            self.perf_event_context_sched_in(next);
            self.perf_pmu_sched_task(true);
        });
        swap
    }

    fn perf_event_context_sched_out(&self, task: usize, next: Option<usize>) -> Swap {
        if self.task(task).ctx.events.borrow().is_empty() {
            return Swap::default();
        }
        if let Some(next) = next.filter(|next| self.are_clones(task, *next)) {
            return self.swap_contexts(task, next);
        }
        self.perf_pmu_disable();
        self.perf_ctx_sched_task_cb(task, false);
        self.task_ctx_sched_out(task, EVENT_ALL);
        self.perf_pmu_enable();
        Swap::default()
    }

    fn perf_event_context_sched_in(&self, task: Option<usize>) {
        let Some(task) = task else {
            return;
        };
        let of_task = self.task(task);
        if of_task.ctx.events.borrow().is_empty() {
            return;
        }
        if self.cpu().task.get() == Some(task) {
            // Its context was swapped, and its events are on the PMU.
            self.perf_pmu_disable();
            self.perf_ctx_sched_task_cb(task, true);
            self.perf_pmu_enable();
            return;
        }
        self.perf_pmu_disable();
        if !of_task.ctx.leaders(true).is_empty() {
            self.ctx_sched_out(&self.cpu().ctx, EVENT_FLEXIBLE);
        }
        self.perf_event_sched_in(Some(task));
        self.perf_ctx_sched_task_cb(task, true);
        self.perf_pmu_enable();
    }

    pub(super) fn perf_ctx_sched_task_cb(&self, task: usize, sched_in: bool) {
        let cpu = self.cpu();
        if cpu.task.get() == Some(task) && cpu.sched_cb_usage.get() > 0 {
            self.sched_task(sched_in);
        }
    }

    /// For a CPU whose task has no events.
    fn perf_pmu_sched_task(&self, sched_in: bool) {
        let cpu = self.cpu();
        if cpu.sched_cb_usage.get() == 0 || cpu.task.get().is_some() {
            return;
        }
        self.perf_pmu_disable();
        self.sched_task(sched_in);
        self.perf_pmu_enable();
    }

    fn sched_task(&self, sched_in: bool) {
        let mut context = perf_event_pmu_context { pmu: self.pmu() };
        call!(
            self.pmu(),
            sched_task(&raw mut context, get_current(), sched_in)
        );
    }

    /// The task on a CPU forks. The child inherits events, and runs nowhere yet.
    pub fn fork(&self, parent: usize) -> usize {
        let number = self.tasks.borrow().len();
        let child = Task::new(number as u64, Some(&self.task(parent)));
        self.tasks.borrow_mut().push(child);
        let leaders = [true, false].map(|pinned| self.task(parent).ctx.leaders(pinned));
        let mut inherited_all = true;
        for leader in leaders.concat() {
            let new = leader
                .is_inherited()
                .then(|| self.inherit_event(&leader, number, None));
            let Some(new) = new.flatten() else {
                inherited_all = false;
                continue;
            };
            for member in leader.group.borrow().clone() {
                inherited_all &= self.inherit_event(&member, number, Some(&new)).is_some();
            }
        }
        if inherited_all {
            self.task(number)
                .ctx
                .become_clone_of(&self.task(parent).ctx);
        }
        number
    }

    fn inherit_event(
        &self,
        of: &Rc<Event>,
        child: usize,
        leader: Option<&Rc<Event>>,
    ) -> Option<Rc<Event>> {
        let mut attr = *of.attr();
        let enabled = of.state() >= perf_event_state_PERF_EVENT_STATE_INACTIVE;
        attr.set_disabled(u64::from(!enabled));
        let parent = of.parent.clone().unwrap_or_else(|| of.clone());
        self.open(attr, (Some(child), of.cpu), leader, Some(parent))
            .ok()
    }

    /// The task on a CPU, in the kernel, calls `execve`.
    pub fn exec(&self, cpu: usize) {
        self.run_on(cpu);
        if let Some(task) = self.running[cpu].get() {
            // SAFETY: nobody else uses the task meanwhile: this is the only thread.
            unsafe { (*self.task(task).raw()).self_exec_id += 1 };
        }
        kernel::bindings::trace_sched_process_exec();
        if let Some(task) = self.running[cpu].get() {
            let task = self.task(task);
            let program = task.nip.get() / PROGRAM;
            task.nip.set(TEXT + (program + 0x10) % 0x100 * PROGRAM);
            task.save_regs();
        }
    }

    /// The task on a CPU, in the kernel, exits, and its events with it (`perf_event_exit_task()`).
    pub fn exit(&self, cpu: usize) {
        self.run_on(cpu);
        let Some(task) = self.running[cpu].get() else {
            return;
        };
        irqs_off(|| self.task_ctx_sched_out(task, EVENT_ALL));
        let events = self.task(task).ctx.events.borrow().clone();
        events.iter().for_each(|event| self.close(event));
        self.switch(cpu, None);
    }

    /// A CPU goes. It runs the idle task.
    pub fn offline(&self, cpu: usize) {
        self.switch(cpu, None);
        self.run_on(cpu);
        irqs_off(|| {
            let events = self.cpus[cpu].ctx.events.borrow().clone();
            for event in events {
                self.perf_remove_from_context(&event);
            }
        });
        kernel::bindings::take_down(cpu as u32);
        self.online[cpu].set(false);
    }

    /// It comes again, and does `early` before the hotplug core calls there.
    pub fn online(&self, cpu: usize, early: impl FnOnce()) {
        if self.has_built_in() {
            built_in::prepare_cpu(cpu as u32);
        }
        kernel::bindings::bring_up(cpu as u32, || {
            machine::restart(cpu);
            self.online[cpu].set(true);
            early();
        });
        self.run_on(cpu);
    }
}

// SPDX-License-Identifier: GPL-2.0

//! Tasks, which run on CPUs, fork, exec and exit; and CPU hotplug.

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

/// Start of the first program. Each program has a megabyte, and `execve` selects another one.
const TEXT: u64 = 0x1000;
const PROGRAM: u64 = 1 << 20;

/// Size of the data of a task: each of its programs has a megabyte. Data of the first task start
/// here.
const DATA: u64 = 1 << 28;

/// A task with a program.
pub struct Task {
    number: u64,
    raw: UnsafeCell<task_struct>,
    regs: UnsafeCell<pt_regs>,
    pub ctx: Context,
    /// The address of the program's next instruction.
    pub nip: Cell<u64>,
}

/// A value for `mm`, which only has to be non-null: a task with a program has memory.
static MM: mm_struct = mm_struct;

impl Task {
    /// Creates a task. Of the parent's EBB state it has only MMCR3, SIER2 and SIER3
    /// (`clear_task_ebb()`).
    pub fn new(number: u64, parent: Option<&Self>) -> Rc<Self> {
        let mut raw = match parent {
            // SAFETY: The parent is alive, and no other thread changes it.
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

    /// Returns the address of its program's data, which no other program uses.
    pub fn data(&self) -> u64 {
        // SAFETY: The structure belongs to `self`, and no other thread changes it.
        let programs = unsafe { (*self.raw()).self_exec_id };
        DATA * (self.number + 1) + programs % 0x100 * PROGRAM
    }

    /// Returns whether an address is one of the data of the task's programs.
    pub fn owns(&self, data: u64) -> bool {
        data / DATA == self.number + 1
    }

    /// Saves the registers with which its program entered the kernel.
    fn save_regs(&self) {
        let mut regs = pt_regs::default();
        let named = &mut regs.__bindgen_anon_1.__bindgen_anon_1;
        (named.nip, named.msr) = (self.nip.get() as usize, MSR_PR as usize);
        // SAFETY: The structures belong to `self`, and there are no references to them.
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

    /// Continues the test on this CPU, with the task that runs there.
    pub fn run_on(&self, cpu: usize) {
        switch_to(cpu as u32);
        let task = self.running[cpu].get();
        set_current(task.map_or(std::ptr::null_mut(), |task| self.task(task).raw()));
    }

    /// Enters the kernel from the program on this CPU.
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

    /// Returns to the program. The result is whether it continues in its handler.
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

    /// Switches the CPU, which is in the kernel, to another task, or to the idle task (`None`).
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
                // SAFETY: The task is alive, and there are no other references to its registers.
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
                // SAFETY: The task is alive, and no other thread changes it.
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
            // The task's context was swapped, so its events are already on the PMU.
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

    /// Calls `sched_task` for a task without events.
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

    /// Forks the task on a CPU. The child inherits events, and does not run yet.
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

    /// Executes `execve` for the task on a CPU, which is in the kernel.
    pub fn exec(&self, cpu: usize) {
        self.run_on(cpu);
        if let Some(task) = self.running[cpu].get() {
            // SAFETY: The task is alive, and this is the only thread.
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

    /// Ends the task on a CPU, which is in the kernel, and its events (`perf_event_exit_task()`).
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

    /// Takes a CPU offline. It switches to the idle task first.
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

    /// Brings a CPU up again, and calls `early` on it before the hotplug core's callbacks run there.
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

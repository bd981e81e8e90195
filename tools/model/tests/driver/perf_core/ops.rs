// SPDX-License-Identifier: GPL-2.0

//! System calls of programs: they open, close, read and control events.

use super::{
    Context, Event, PerfCore,
    sched::{EVENT_ALL, EVENT_FLEXIBLE, EVENT_PINNED, call},
};
use crate::{
    machine::{self, irqs_off, switch_to, with_cpu, with_machine},
    perf_bindings::*,
};
use std::rc::Rc;

const EINVAL: i32 = -22;

impl PerfCore {
    /// Calls `f` on a CPU: in an interrupt, or directly if the test is in the kernel on that CPU
    /// (`cpu_function_call()`).
    pub(super) fn on_cpu<R>(&self, cpu: usize, f: impl FnOnce() -> R) -> R {
        let before = with_machine(|machine| machine.current);
        let task = kernel::bindings::get_current();
        self.run_on(cpu);
        let in_program = with_cpu(|cpu| cpu.facility.context.problem);
        let result = if in_program || cpu != before {
            if in_program {
                self.enter_kernel(cpu);
            }
            let result = machine::interrupt(f);
            if in_program {
                self.leave_kernel(cpu);
            }
            machine::take_interrupt();
            result
        } else {
            irqs_off(f)
        };
        switch_to(before as u32);
        kernel::bindings::set_current(task);
        result
    }

    /// Returns the CPU that runs the event's task, or the CPU of an event without a task.
    fn cpu_of(&self, event: &Event) -> Option<usize> {
        match event.task.get() {
            Some(task) => self.running.iter().position(|cpu| cpu.get() == Some(task)),
            None => event.cpu.filter(|&cpu| self.online[cpu].get()),
        }
    }

    /// Calls `f` on the CPU where the event's context is scheduled, or here if there is none
    /// (`event_function_call()`).
    fn event_function_call<R>(&self, event: &Event, f: impl FnOnce() -> R) -> R {
        match self.cpu_of(event) {
            Some(cpu) => self.on_cpu(cpu, f),
            None => f(),
        }
    }

    fn kind(event: &Event) -> u8 {
        if event.leader().is_pinned() {
            EVENT_PINNED
        } else {
            EVENT_FLEXIBLE
        }
    }

    /// Opens an event (`perf_event_open()`). Fails with the driver's errno.
    pub fn open(
        &self,
        attr: perf_event_attr,
        (task, cpu): (Option<usize>, Option<usize>),
        leader: Option<&Rc<Event>>,
        parent: Option<Rc<Event>>,
    ) -> Result<Rc<Event>, i32> {
        let id = self.all.borrow().len();
        let event = Event::new(id, self.pmu(), attr, (task, cpu), parent);
        if let Some(leader) = leader {
            let same = leader.task.get() == task && leader.cpu == cpu && leader.is_leader();
            if !same || leader.closed.get() || event.is_pinned() || event.is_exclusive() {
                return Err(EINVAL);
            }
            // SAFETY: Both structures are alive.
            unsafe { (*event.raw()).group_leader = leader.raw() };
        }
        let errno = call!(self.pmu(), event_init(event.raw()));
        if errno != 0 {
            return Err(errno);
        }
        if let Some(leader) = leader {
            event.join(leader);
        }
        self.all.borrow_mut().push(event.clone());
        if event.parent.is_none() {
            // `find_get_context()` does the same.
            self.context(task, cpu.unwrap_or(0), Context::unclone);
        }
        self.perf_install_in_context(&event);
        Ok(event)
    }

    fn add_event_to_ctx(&self, event: &Rc<Event>) {
        let (task, cpu) = (event.task.get(), event.cpu.unwrap_or(0));
        self.context(task, cpu, |ctx| ctx.add(event));
    }

    fn perf_install_in_context(&self, event: &Rc<Event>) {
        let off = event.state() == perf_event_state_PERF_EVENT_STATE_OFF;
        let Some(cpu) = self.cpu_of(event).filter(|_| !off) else {
            return self.add_event_to_ctx(event);
        };
        self.on_cpu(cpu, || {
            self.add_event_to_ctx(event);
            let of_cpu = event.task.get().is_none();
            let task = event.task.get().or_else(|| self.cpu().task.get());
            self.ctx_resched(task, of_cpu, Self::kind(event));
        });
    }

    /// Releases the last reference to an event (`perf_event_release_kernel()`).
    pub fn close(&self, event: &Rc<Event>) {
        if event.closed.replace(true) {
            return;
        }
        self.event_function_call(event, || self.perf_remove_from_context(event));
        // SAFETY: The structure is alive. The driver accepted the event, so it has set the field.
        if let Some(destroy) = unsafe { (*event.raw()).destroy } {
            // SAFETY: The event is on no CPU any more, and `destroy` is called once.
            unsafe { destroy(event.raw()) };
        }
    }

    pub(super) fn perf_remove_from_context(&self, event: &Rc<Event>) {
        self.event_sched_out(event);
        event.set_state(perf_event_state_PERF_EVENT_STATE_OFF);
        event.detach();
        self.context(event.task.get(), event.cpu.unwrap_or(0), |ctx| {
            ctx.remove(event);
            if ctx.events.borrow().is_empty() {
                ctx.is_active.set(0);
                let task = &self.cpu().task;
                if event.task.get().is_some() && task.get() == event.task.get() {
                    task.set(None);
                }
            }
        });
    }

    /// Enables an event (`PERF_EVENT_IOC_ENABLE`).
    pub fn enable(&self, event: &Rc<Event>) {
        self.event_function_call(event, || {
            let state = event.state();
            if state >= perf_event_state_PERF_EVENT_STATE_INACTIVE {
                return;
            }
            event.set_state(perf_event_state_PERF_EVENT_STATE_INACTIVE);
            let leader = event.leader();
            let here = self.cpu_of(event);
            let runs = here.is_some() && event.cpu.is_none_or(|cpu| here == Some(cpu));
            if runs && (leader.id == event.id || leader.is_active()) {
                let of_cpu = event.task.get().is_none();
                let task = event.task.get().or_else(|| self.cpu().task.get());
                self.ctx_resched(task, of_cpu, Self::kind(event));
            }
        });
    }

    /// Disables an event (`PERF_EVENT_IOC_DISABLE`).
    pub fn disable(&self, event: &Rc<Event>) {
        self.event_function_call(event, || {
            if event.state() < perf_event_state_PERF_EVENT_STATE_INACTIVE {
                return;
            }
            let runs = self.cpu_of(event).is_some();
            if runs {
                self.perf_pmu_disable();
                if event.is_leader() {
                    self.group_sched_out(event);
                }
                self.event_sched_out(event);
            }
            event.set_state(perf_event_state_PERF_EVENT_STATE_OFF);
            if runs {
                self.perf_pmu_enable();
            }
        });
    }

    /// Reads an event or its group (`read()`), which updates the counts.
    pub fn read(&self, event: &Rc<Event>) -> u64 {
        if let Some(cpu) = event.oncpu.get() {
            self.on_cpu(cpu, || {
                let pmu = self.pmu();
                call!(pmu, start_txn(pmu, PERF_PMU_TXN_READ));
                call!(pmu, read(event.raw()));
                for member in event
                    .group
                    .borrow()
                    .iter()
                    .filter(|member| member.is_active())
                {
                    call!(pmu, read(member.raw()));
                }
                call!(pmu, commit_txn(pmu));
            });
        }
        event.count()
    }

    /// Resets the count of an event (`PERF_EVENT_IOC_RESET`). Returns the previous one.
    pub fn reset(&self, event: &Rc<Event>) -> u64 {
        let count = self.read(event);
        // SAFETY: The structure is alive.
        unsafe { (*event.raw()).count = 0 };
        count
    }

    /// Sets the period of an event (`PERF_EVENT_IOC_PERIOD`).
    pub fn period(&self, event: &Rc<Event>, period: u64) {
        self.event_function_call(event, || {
            let raw = event.raw();
            // SAFETY: The structure is alive.
            unsafe {
                (*raw).attr.__bindgen_anon_1.sample_period = period;
                (*raw).hw.sample_period = period;
            }
            let active = event.is_active();
            if active {
                self.perf_pmu_disable();
                call!(self.pmu(), stop(raw, 0));
            }
            // SAFETY: The structure is alive.
            unsafe { (*raw).hw.__bindgen_anon_2.__bindgen_anon_1.period_left = 0 };
            event.begin_period(period);
            if active {
                call!(self.pmu(), start(raw, 0));
                if event.interrupts() == u64::MAX {
                    self.perf_event_unthrottle_group(event, true);
                }
                self.perf_pmu_enable();
            }
        });
    }

    /// Changes the period of an event with a frequency (`perf_adjust_period()`).
    pub fn adjust_period(&self, event: &Rc<Event>, period: u64) {
        self.event_function_call(event, || {
            let raw = event.raw();
            // SAFETY: The structure is alive.
            let left = unsafe {
                (*raw).attr.set_freq(1);
                (*raw).hw.sample_period = period;
                (*raw).hw.__bindgen_anon_2.__bindgen_anon_1.period_left
            };
            // In that case a period begins when the event is scheduled in.
            if left == 0 {
                event.begin_period(period);
            }
            if !event.is_active() || !event.counter_runs() {
                return;
            }
            self.perf_pmu_disable();
            if left > 8 * period as i64 {
                call!(self.pmu(), stop(raw, 0));
                // SAFETY: The structure is alive.
                unsafe { (*raw).hw.__bindgen_anon_2.__bindgen_anon_1.period_left = 0 };
                event.begin_period(period);
                call!(self.pmu(), start(raw, 0));
            }
            self.perf_pmu_enable();
        });
    }

    /// Rotates the flexible groups of a CPU and of its task (`perf_rotate_context()`).
    pub fn rotate(&self, cpu: usize) {
        self.on_cpu(cpu, || {
            let task = self.cpu().task.get();
            self.perf_pmu_disable();
            if let Some(task) = task {
                self.task_ctx_sched_out(task, EVENT_FLEXIBLE);
            }
            self.ctx_sched_out(&self.cpu().ctx, EVENT_FLEXIBLE);
            self.cpu().ctx.rotate();
            if let Some(task) = task {
                self.task(task).ctx.rotate();
            }
            self.perf_event_sched_in(task);
            self.perf_pmu_enable();
        });
    }

    /// Moves the CPU's task to another cgroup (`perf_cgroup_switch()`). `is_of_others` is whether
    /// the CPU's events belong to a different one.
    pub fn cgroup_switch(&self, cpu: usize, is_of_others: bool) {
        self.on_cpu(cpu, || {
            self.perf_pmu_disable();
            self.ctx_sched_out(&self.cpu().ctx, EVENT_ALL);
            self.cpu().is_of_others.set(is_of_others);
            self.perf_event_sched_in(None);
            self.perf_pmu_enable();
        });
    }

    /// Removes all flexible events from the CPU and adds them again, as perf core does when a
    /// disabled event of a cgroup is opened for the CPU.
    pub fn reschedule(&self, cpu: usize) {
        self.on_cpu(cpu, || {
            let task = self.cpu().task.get();
            self.ctx_resched(task, true, EVENT_FLEXIBLE);
        });
    }

    /// Runs the timer tick of a CPU, which restarts throttled groups.
    pub fn tick(&self, cpu: usize) {
        self.on_cpu(cpu, || {
            let here = |event: &&Rc<Event>| event.oncpu.get() == Some(cpu);
            let events: Vec<_> = self.all.borrow().iter().filter(here).cloned().collect();
            let throttled = events.iter().any(|event| event.interrupts() == u64::MAX);
            if throttled {
                self.perf_pmu_disable();
            }
            for event in &events {
                if event.interrupts() == u64::MAX {
                    self.perf_event_unthrottle_group(event, false);
                }
                event.set_interrupts(0);
            }
            if throttled {
                self.perf_pmu_enable();
            }
        });
    }
}

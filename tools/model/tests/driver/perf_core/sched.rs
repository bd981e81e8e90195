// SPDX-License-Identifier: GPL-2.0

//! Events come to a CPU and leave it. Interrupts are off.

use super::{Context, Event, PerfCore, built_in};
use crate::{
    machine::{ensure, with_cpu},
    perf_bindings::*,
};
use pmu_model::{mmcr0, spr};
use std::rc::Rc;

/// Kinds of groups, as a set.
pub const EVENT_PINNED: u8 = 1;
pub const EVENT_FLEXIBLE: u8 = 2;
pub const EVENT_ALL: u8 = EVENT_PINNED | EVENT_FLEXIBLE;

/// Calls a callback of the PMU, which must exist.
macro_rules! call {
    ($pmu:expr, $callback:ident($($argument:expr),*)) => {{
        let pmu = $pmu;
        // SAFETY: The PMU is registered, and the caller passes the arguments that perf core does.
        unsafe { ((*pmu).$callback.expect("a callback"))($($argument),*) }
    }};
}
pub(super) use call;

impl PerfCore {
    pub(super) fn pmu(&self) -> *mut pmu {
        self.pmu.get()
    }

    pub(super) fn perf_pmu_disable(&self) {
        let count = &self.cpu().disable_count;
        if count.replace(count.get() + 1) == 0 {
            call!(self.pmu(), pmu_disable(self.pmu()));
        }
    }

    pub(super) fn perf_pmu_enable(&self) {
        let count = &self.cpu().disable_count;
        count.set(count.get() - 1);
        if count.get() == 0 {
            let mmcr0 = with_cpu(|cpu| cpu.facility.mfspr(spr::MMCR0));
            ensure(mmcr0 & mmcr0::FC != 0, || {
                "the PMU runs while it is disabled".into()
            });
            call!(self.pmu(), pmu_enable(self.pmu()));
        }
    }

    fn event_sched_in(&self, event: &Event) -> bool {
        if event.state() <= perf_event_state_PERF_EVENT_STATE_OFF {
            return true;
        }
        let cpu = self.cpu();
        event
            .oncpu
            .set(Some(kernel::cpu::CpuId::current().as_u32() as usize));
        event.set_state(perf_event_state_PERF_EVENT_STATE_ACTIVE);
        if event.interrupts() == u64::MAX {
            self.perf_event_unthrottle(event, false);
        }
        self.perf_pmu_disable();
        let added = call!(self.pmu(), add(event.raw(), PERF_EF_START as i32)) == 0;
        if added {
            // SAFETY: The event's structure is there.
            if self.has_built_in() && unsafe { !(*event.raw()).pmu_private.is_null() } {
                built_in::others_run();
            }
            cpu.active_oncpu.set(cpu.active_oncpu.get() + 1);
            if event.is_exclusive() {
                cpu.exclusive.set(true);
            }
        } else {
            event.set_state(perf_event_state_PERF_EVENT_STATE_INACTIVE);
            event.oncpu.set(None);
        }
        self.perf_pmu_enable();
        added
    }

    pub(super) fn event_sched_out(&self, event: &Event) {
        if !event.is_active() {
            return;
        }
        let cpu = self.cpu();
        self.perf_pmu_disable();
        call!(self.pmu(), del(event.raw(), 0));
        event.oncpu.set(None);
        event.set_state(perf_event_state_PERF_EVENT_STATE_INACTIVE);
        cpu.active_oncpu.set(cpu.active_oncpu.get() - 1);
        if event.is_exclusive() || cpu.active_oncpu.get() == 0 {
            cpu.exclusive.set(false);
        }
        self.perf_pmu_enable();
    }

    pub(super) fn group_sched_out(&self, leader: &Event) {
        if !leader.is_active() {
            return;
        }
        self.event_sched_out(leader);
        for member in leader.group.borrow().clone() {
            self.event_sched_out(&member);
        }
    }

    fn group_sched_in(&self, leader: &Event) -> bool {
        if leader.state() == perf_event_state_PERF_EVENT_STATE_OFF {
            return true;
        }
        let pmu = self.pmu();
        call!(pmu, start_txn(pmu, PERF_PMU_TXN_ADD));
        if !self.event_sched_in(leader) {
            call!(pmu, cancel_txn(pmu));
            return false;
        }
        let members = leader.group.borrow().clone();
        let added = members
            .iter()
            .take_while(|member| self.event_sched_in(member))
            .count();
        if added == members.len() && call!(pmu, commit_txn(pmu)) == 0 {
            return true;
        }
        for member in &members[..added] {
            self.event_sched_out(member);
        }
        self.event_sched_out(leader);
        call!(pmu, cancel_txn(pmu));
        false
    }

    fn group_can_go_on(&self, leader: &Event, can_add_hw: bool) -> bool {
        let cpu = self.cpu();
        if cpu.exclusive.get() {
            return false;
        }
        if leader.is_exclusive() && self.has_active(leader.is_pinned()) {
            return false;
        }
        can_add_hw
    }

    /// Returns whether a group of this kind is on the CPU (`get_event_list()`).
    fn has_active(&self, pinned: bool) -> bool {
        let cpu = self.cpu();
        let active = |ctx: &Context| ctx.leaders(pinned).iter().any(|event| event.is_active());
        let of_task = cpu
            .task
            .get()
            .is_some_and(|task| self.context(Some(task), 0, active));
        of_task || active(&cpu.ctx)
    }

    fn pmu_groups_sched_in(&self, leaders: &[Rc<Event>]) {
        let here = kernel::cpu::CpuId::current().as_u32() as usize;
        let mut can_add_hw = true;
        for leader in leaders {
            let is_of_others = leader.task.get().is_none() && self.cpu().is_of_others.get();
            let elsewhere = leader.cpu.is_some_and(|cpu| cpu != here) || is_of_others;
            if leader.state() <= perf_event_state_PERF_EVENT_STATE_OFF || elsewhere {
                continue;
            }
            if self.group_can_go_on(leader, can_add_hw) {
                self.group_sched_in(leader);
            }
            if leader.state() == perf_event_state_PERF_EVENT_STATE_INACTIVE {
                can_add_hw = false;
                if leader.is_pinned() {
                    leader.set_state(perf_event_state_PERF_EVENT_STATE_ERROR);
                }
            }
        }
    }

    fn ctx_sched_in(&self, ctx: &Context, kinds: u8) {
        if ctx.events.borrow().is_empty() {
            return;
        }
        let before = ctx.is_active.replace(ctx.is_active.get() | kinds);
        let changed = before ^ ctx.is_active.get();
        for (kind, pinned) in [(EVENT_PINNED, true), (EVENT_FLEXIBLE, false)] {
            if changed & kind != 0 {
                self.pmu_groups_sched_in(&ctx.leaders(pinned));
            }
        }
    }

    pub(super) fn ctx_sched_out(&self, ctx: &Context, kinds: u8) {
        if ctx.events.borrow().is_empty() {
            return;
        }
        let before = ctx.is_active.replace(ctx.is_active.get() & !kinds);
        let changed = before ^ ctx.is_active.get();
        if changed == 0 {
            return;
        }
        self.perf_pmu_disable();
        for (kind, pinned) in [(EVENT_PINNED, true), (EVENT_FLEXIBLE, false)] {
            if changed & kind != 0 {
                for leader in ctx.leaders(pinned) {
                    self.group_sched_out(&leader);
                }
            }
        }
        self.perf_pmu_enable();
    }

    /// Removes the task's context, or some kinds of its groups, from the CPU.
    pub(super) fn task_ctx_sched_out(&self, task: usize, kinds: u8) {
        let cpu = self.cpu();
        if cpu.task.get() != Some(task) {
            return;
        }
        self.context(Some(task), 0, |ctx| {
            self.ctx_sched_out(ctx, kinds);
            if ctx.is_active.get() == 0 {
                cpu.task.set(None);
            }
        });
    }

    /// Adds the pinned groups of the CPU, those of the task, and then the flexible groups of both.
    pub(super) fn perf_event_sched_in(&self, task: Option<usize>) {
        for kind in [EVENT_PINNED, EVENT_FLEXIBLE] {
            self.ctx_sched_in(&self.cpu().ctx, kind);
            if let Some(task) = task {
                self.context(Some(task), 0, |ctx| {
                    if !ctx.events.borrow().is_empty() {
                        self.cpu().task.set(Some(task));
                    }
                    self.ctx_sched_in(ctx, kind);
                });
            }
        }
    }

    /// Schedules all groups of these kinds again, because of a change of the CPU's or the task's
    /// groups.
    pub(super) fn ctx_resched(&self, task: Option<usize>, of_cpu: bool, mut kinds: u8) {
        if kinds & EVENT_PINNED != 0 {
            kinds |= EVENT_FLEXIBLE;
        }
        self.perf_pmu_disable();
        if let Some(task) = task {
            self.task_ctx_sched_out(task, kinds);
        }
        if of_cpu {
            self.ctx_sched_out(&self.cpu().ctx, kinds);
        } else if kinds & EVENT_PINNED != 0 {
            self.ctx_sched_out(&self.cpu().ctx, EVENT_FLEXIBLE);
        }
        self.perf_event_sched_in(task);
        self.perf_pmu_enable();
    }

    pub(super) fn perf_event_unthrottle(&self, event: &Event, start: bool) {
        if !event.is_active() {
            return;
        }
        event.set_interrupts(0);
        if start {
            call!(self.pmu(), start(event.raw(), 0));
        }
    }

    pub(super) fn perf_event_throttle_group(&self, event: &Event) {
        let leader = event.leader();
        let throttle = |event: &Event| {
            if event.is_active() {
                event.set_interrupts(u64::MAX);
                call!(self.pmu(), stop(event.raw(), 0));
            }
        };
        throttle(leader);
        for member in leader.group.borrow().iter() {
            throttle(member);
        }
    }

    pub(super) fn perf_event_unthrottle_group(&self, event: &Event, skip_start_event: bool) {
        let leader = event.leader();
        let members = leader.group.borrow().clone();
        let starts = |other: &Event| !skip_start_event || other.id != event.id;
        self.perf_event_unthrottle(leader, starts(leader));
        for member in &members {
            self.perf_event_unthrottle(member, starts(member));
        }
    }
}

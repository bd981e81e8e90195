// SPDX-License-Identifier: GPL-2.0

//! The machine with the driver, its tasks and events, and the effects of operations.

use super::{
    op::{Op, UserWrite, Wish, wish},
    oracle::{CODES, EBB_CODES, Oracle, THRESHOLD, is_marked},
    program::{Program, check_closed},
    program_code::instruction_at,
};
use crate::{
    driver::{Interposed, Takeover},
    machine::{self, Cpu, Kind, boot, execute_in_program, with_cpu, with_machine},
    perf_bindings::*,
    perf_core::{Event, PerfCore, Task, built_in, calls},
};
use kernel::{cpu::CPUS, prelude::ThisModule};
use pmu_model::{
    Executed, Facility, Guest, Idle, Instruction, Processor, Trace, bescr, mmcr0, mmcr2, mmcra, spr,
};
use std::{
    collections::{HashMap, HashSet},
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
};

mod branches;
mod broken_rules;
mod clones;
mod cpus;
mod directed;
mod events;
mod interposed;
mod invariants;
mod kept_counters;
mod overload;
mod programs;
mod reach;
mod repeated;
mod samples;
mod states;
mod stop_state;
mod suspended;
mod traced;
mod turns;
mod two_groups;

pub use branches::REAL_MODE;
use branches::Recorded;
use cpus::kernel_work;
pub use reach::take as take_reached;

const MODULE: &ThisModule = &ThisModule;
const TASKS: usize = 4;
/// Limits for the number of open events, and of tasks.
const MOST_EVENTS: usize = 20;
const MOST_TASKS: usize = 8;
/// Time between two steps, in ticks of the time base: 4 ms.
const TICK: u64 = 1 << 21;
/// Address of the EBB handler of programs.
pub const HANDLER: u64 = 0x5000;
const NEGATIVE: u64 = 0x8000_0000;
/// Bit 63 of an event code.
const EBB: u64 = 1 << 63;
/// Bit 62: the BHRB records all branches.
const BHRB: u64 = 1 << 62;

/// The loaded module.
#[expect(dead_code, reason = "it only lives")]
enum Module {
    Takeover(Takeover),
    Interposed(Interposed),
}

impl Module {
    fn load(is_interposed: bool) -> Self {
        if is_interposed {
            Self::Interposed(Interposed::new(MODULE).expect("the PMU"))
        } else {
            Self::Takeover(Takeover::new(MODULE).expect("the PMU"))
        }
    }
}

/// The machine, perf core, and the expected results.
pub struct World {
    core: Rc<PerfCore>,
    module: Option<Module>,
    open: Vec<Rc<Event>>,
    /// The events of the built-in driver.
    others: Vec<Rc<Event>>,
    /// The tasks that have not exited.
    live: Vec<usize>,
    oracle: Oracle,
    programs: HashMap<usize, Program>,
    /// EBB events that have been on a PMU, and members of groups of which an event has.
    seen: HashSet<usize>,
    /// CPU on which PM interrupts wait for the next step.
    interrupts_wait_on: Option<usize>,
    /// Counts of the rare situations that the history reaches.
    reach: reach::Reach,
    /// CPUs whose PMU has had no event since the partition was suspended.
    untouched: [bool; CPUS as usize],
    /// Branches of each CPU's program since it was switched in.
    recorded: [Recorded; CPUS as usize],
}

impl World {
    pub fn new(kind: Kind, log: bool) -> Self {
        kernel::complaint();
        boot(kind);
        let core = PerfCore::restart();
        with_machine(|machine| {
            machine.log = log.then(Vec::new);
            let cpus = (0..).zip(&mut machine.cpus);
            cpus.for_each(|(number, cpu)| kind.let_others_run(cpu, number));
        });
        *core.tasks.borrow_mut() = (0..TASKS as u64).map(|n| Task::new(n, None)).collect();
        if kind.is_interposed {
            core.use_built_in(kind.seed);
        }
        Self {
            core,
            module: Some(Module::load(kind.is_interposed)),
            open: Vec::new(),
            others: Vec::new(),
            live: (0..TASKS).collect(),
            oracle: Oracle::default(),
            interrupts_wait_on: None,
            reach: reach::Reach::default(),
            untouched: [false; CPUS as usize],
            programs: HashMap::new(),
            seen: HashSet::new(),
            recorded: Default::default(),
        }
    }

    /// Returns an online CPU for a number.
    fn cpu(&self, number: u8) -> usize {
        let cpu = usize::from(number) % CPUS as usize;
        if self.core.online[cpu].get() { cpu } else { 0 }
    }

    fn event(&self, number: u8) -> Option<Rc<Event>> {
        let count = (self.open.len() + self.others.len()).max(1);
        let mut events = self.open.iter().chain(&self.others);
        events.nth(usize::from(number) % count).cloned()
    }

    /// Executes a step, and then compares everything.
    pub fn step(&mut self, op: &Op) {
        machine::note(|| format!("{op:?}"));
        self.recorded.iter_mut().for_each(Recorded::begin);
        let waiting = self.interrupts_wait_on.take();
        with_machine(|machine| machine.time_base += TICK);
        self.core.begin_step();
        match *op {
            Op::Run(cpu, count, cycles, branch) => self.run(self.cpu(cpu), count, cycles, branch),
            Op::User(cpu, write) => self.user(self.cpu(cpu), write),
            Op::Syscall(cpu, count, late, masked) => {
                self.syscall(self.cpu(cpu), count, late, masked);
            }
            Op::Hold(cpu) => self.interrupts_wait_on = Some(self.cpu(cpu)),
            Op::PreemptIn(cpu, count) => self.preempt_in(self.cpu(cpu), count),
            Op::Trace(cpu, count, branches) => self.trace(self.cpu(cpu), count, branches),
            Op::ProbeIn(cpu, count) => {
                let cpu = self.cpu(cpu);
                with_machine(|machine| machine.cpus[cpu].probed_in = Some(count));
            }
            _ => {
                if let Some(cpu) = waiting {
                    self.overflow_unseen(cpu);
                }
                self.in_kernel(op);
                if let Some(cpu) = waiting {
                    self.let_interrupts_through(cpu);
                }
            }
        }
        if let Some(complaint) = kernel::complaint() {
            panic!("{complaint}");
        }
        self.check();
    }

    /// Executes a step in which a CPU enters the kernel.
    fn in_kernel(&mut self, op: &Op) {
        let cpu = match *op {
            Op::Switch(cpu, _) | Op::Kernel(cpu, ..) | Op::Fork(cpu) | Op::Exec(cpu) => {
                self.cpu(cpu)
            }
            Op::Preempt(cpu) | Op::Sleep(cpu, _) | Op::Tick(cpu) | Op::Rotate(cpu) => self.cpu(cpu),
            Op::Elapse(cpu) | Op::Cgroup(cpu, _) | Op::Reschedule(cpu) => self.cpu(cpu),
            Op::Idle(cpu, ..) | Op::Hypercall(cpu, _) => self.cpu(cpu),
            Op::Turn(cpu, _) | Op::Migrate(cpu, _) | Op::Exit(cpu) => self.cpu(cpu),
            Op::Clone(cpu, _) => self.cpu(cpu),
            _ => 0,
        };
        let core = self.core.clone();
        // These operations are interrupts themselves.
        match *op {
            Op::Tick(_) => return core.tick(cpu),
            Op::Rotate(_) => return core.rotate(cpu),
            Op::Cgroup(_, stays_away) => return core.cgroup_switch(cpu, stays_away),
            Op::Reschedule(_) => return core.reschedule(cpu),
            _ => {}
        }
        core.enter_kernel(cpu);
        branches::branch_in_real_mode();
        branches::branch_in_kernel();
        if !matches!(*op, Op::Kernel(_, _, true)) {
            self.let_interrupts_through(cpu);
        }
        match *op {
            Op::Switch(_, task) => self.switch(cpu, task),
            Op::Kernel(_, count, masked) => kernel_work(count, masked),
            Op::Idle(_, count, nmi) => self.idle(cpu, count, nmi),
            Op::Hypercall(_, count) => self.hypercall(cpu, count),
            Op::Open(task, wish) => self.open(task, wish),
            Op::OpenEbb(task, code) => {
                self.join_ebb(task, CODES[usize::from(code) % EBB_CODES].0, code)
            }
            Op::OpenEbbGroup(task, code, of_cpu) => {
                let place = (self.task(task), of_cpu.map(|cpu| self.cpu(cpu)));
                self.open_ebb(place, CODES[usize::from(code) % EBB_CODES].0, code, None);
            }
            Op::OpenMarkedEbb(task) => self.join_ebb(task, CODES[EBB_CODES].0, 0),
            Op::OpenThresholdEbb(task) => self.join_ebb(task, CODES[7].0 | THRESHOLD, 0),
            Op::Close(event) => {
                if let Some(event) = self.event(event) {
                    self.open.retain(|other| other.id != event.id);
                    self.others.retain(|other| other.id != event.id);
                    core.close(&event);
                }
            }
            Op::Read(event) => {
                if let Some(event) = self.event(event) {
                    core.read(&event);
                }
            }
            Op::Enable(event) => {
                if let Some(event) = self.event(event) {
                    core.enable(&event);
                }
            }
            Op::Disable(event) => {
                if let Some(event) = self.event(event) {
                    core.disable(&event);
                }
            }
            Op::Reset(event) => {
                if let Some(event) = self.event(event) {
                    core.reset(&event);
                    let since = Self::counter(&event)
                        .map_or(0, |pmc| pmc.wrapping_sub(event.prev_count()).into());
                    if !is_ebb(&event) && !self.core.has_built_in() {
                        self.oracle.reset(&event, since);
                    }
                }
            }
            Op::Period(event, period) => {
                let samples = |event: &Rc<Event>| event.attr().__bindgen_anon_1.sample_period > 0;
                if let Some(event) = self.event(event).filter(samples) {
                    core.period(&event, u64::from(period) + 8);
                }
            }
            Op::Adjust(event, period) => {
                if let Some(event) = self.event(event).filter(|event| event.sample_period() > 0) {
                    core.adjust_period(&event, u64::from(period) + 8);
                }
            }
            Op::Throttle(limit) => core.max_samples_per_tick.set(u32::from(limit % 8) + 1),
            Op::Fork(_) => self.fork(cpu),
            Op::Exec(_) => self.exec(cpu),
            Op::Offline(which) => self.offline(usize::from(which) % CPUS as usize),
            Op::Online(which) => {
                let which = usize::from(which) % CPUS as usize;
                if !core.online[which].get() {
                    core.online(which, || ());
                    core.run_on(cpu);
                }
            }
            Op::Turn(_, code) => self.turn(cpu, code),
            Op::Migrate(_, to) => self.migrate(cpu, to),
            Op::Clone(_, wish) => self.clone_task(cpu, wish),
            Op::Exit(_) => self.exit(cpu),
            Op::Preempt(_) => self.preempt(cpu),
            Op::Elapse(_) => self.elapse(cpu),
            Op::Sleep(_, deep) => self.sleep(cpu, deep),
            Op::Suspend(resets) => self.suspend(resets),
            Op::Reload => self.reload(),
            Op::Run(..) | Op::User(..) | Op::Syscall(..) | Op::Hold(_) | Op::PreemptIn(..) => {}
            Op::Trace(..) | Op::ProbeIn(..) => {}
            Op::Tick(_) | Op::Rotate(_) | Op::Cgroup(..) | Op::Reschedule(_) => {}
        }
        self.core.leave_kernel(cpu);
    }

    /// Returns the value of an event's counter, if it is on one that runs.
    fn counter(event: &Event) -> Option<u32> {
        let running = event.oncpu.get();
        let running = running.filter(|_| event.counter_runs() && event.idx() > 0);
        running.map(|cpu| {
            let number = spr::PMC1 + event.idx() as u32 - 1;
            with_machine(|machine| machine.cpus[cpu].facility.mfspr(number) as u32)
        })
    }

    /// Compares all counts, samples and registers.
    fn check(&mut self) {
        let all = self.core.all.borrow();
        all.iter().for_each(|event| event.check_throttling());
        drop(all);
        for event in &self.open {
            if event.excludes_host() {
                // All instructions of histories are instructions of the host.
                let samples = event.samples.borrow().len();
                assert_eq!((event.count(), samples), (0, 0), "event {}: host", event.id);
            } else if is_ebb(event) {
                // The program reads the counter itself.
                assert_eq!(event.count(), 0, "event {}: count", event.id);
            } else {
                self.oracle.check(event, Self::counter(event));
                Self::check_period(event);
            }
        }
        self.check_stacks();
        self.check_invariants();
        for cpu in 0..CPUS as usize {
            let Some(task) = self.core.running[cpu].get() else {
                continue;
            };
            self.core.run_on(cpu);
            let active = self.open.iter().any(|event| event.oncpu.get() == Some(cpu));
            with_cpu(|cpu| {
                assert!(
                    cpu.facility.context.problem && cpu.mask == 0,
                    "the program runs"
                );
                assert!(
                    !cpu.pmi_pending && !cpu.facility.interrupt_is_due(),
                    "an interrupt waits"
                );
                if active {
                    assert!(cpu.pmcs_enabled, "the PMU is not turned on");
                }
            });
            self.untouched[cpu] &= !self.open.iter().any(|event| event.oncpu.get() == Some(cpu));
            self.count_group(cpu, task);
            if self.sync_program(cpu, task) {
                // SAFETY: The task exists, and no other thread changes it.
                let used = unsafe { (*self.core.task(task).raw()).thread.used_ebb };
                assert_eq!(used, 1, "task {task}: debuggers see no EBB registers");
            } else if !self.untouched[cpu]
                && (!self.core.has_built_in() || built_in::is_others(cpu))
            {
                with_cpu(|at| check_closed(&at.facility));
            }
        }
    }

    /// Closes all events, and gives the PMU back.
    pub fn end(&mut self) {
        for cpu in 0..CPUS as usize {
            self.core.enter_kernel(cpu);
            self.core.switch(cpu, None);
        }
        self.core.run_on(0);
        for event in std::mem::take(&mut self.open) {
            self.core.close(&event);
        }
        if self.core.has_built_in() {
            return self.end_interposed();
        }
        for cpu in 0..CPUS as usize {
            with_machine(|machine| {
                let mmcr0 = machine.cpus[cpu].facility.mfspr(spr::MMCR0);
                assert!(mmcr0 & mmcr0::FC != 0, "CPU {cpu} still counts");
            });
        }
        assert!(
            with_machine(|machine| machine.perf_irq.is_none()),
            "the PMU is reserved"
        );
        // Probes change SIAR and SDAR, which is from now on the built-in driver's concern.
        with_machine(|machine| machine.cpus.iter_mut().for_each(|cpu| cpu.probed_in = None));
        self.module = None;
        if let Some(complaint) = kernel::complaint() {
            panic!("{complaint}");
        }
        self.check_given_back();
    }
}

impl Drop for World {
    /// Drops the module's state, because a failure may leave the driver in any state.
    fn drop(&mut self) {
        with_machine(|machine| {
            machine.perf_irq = None;
            machine.current = 0;
            for cpu in &mut machine.cpus {
                cpu.facility.context.problem = false;
                (cpu.mask, cpu.pmi_pending) = (0, false);
            }
        });
        let module = self.module.take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(module)));
    }
}

fn is_ebb(event: &Event) -> bool {
    event.attr().config & EBB != 0
}

// SPDX-License-Identifier: GPL-2.0

//! Operations on CPUs: switches, hotplug, sleep, preemption by the hypervisor, and work of the
//! kernel.

use super::{events::cannot_count, *};

impl World {
    pub(super) fn switch(&mut self, cpu: usize, task: u8) {
        let next = self.live.get(usize::from(task) % (self.live.len() + 1));
        let next = next.copied();
        let elsewhere = self.core.running.iter().any(|cpu| cpu.get() == next);
        if next.is_none() || !elsewhere {
            self.switch_to(cpu, next);
        }
    }

    /// Switches a CPU, which is in the kernel, to another task, or to the idle task.
    pub(super) fn switch_to(&mut self, cpu: usize, next: Option<usize>) {
        self.count_swap(cpu, next);
        let swap = self.core.switch(cpu, next);
        self.forget_branches(cpu);
        // Events of the built-in driver are not compared.
        let counts = swap
            .counts
            .into_iter()
            .filter(|_| !self.core.has_built_in());
        for (event, other) in counts.collect::<Vec<_>>() {
            self.oracle.exchange(event, other);
        }
        // After a swap of contexts the events are still where they were.
        if let Some(task) = next.filter(|_| !swap.is_done) {
            self.check_counts(cpu, task);
        }
    }

    /// Checks that an event without competitors is on the PMU when its task is switched in.
    fn check_counts(&self, cpu: usize, task: usize) {
        let is_on = |event: &&Rc<Event>| event.state() > perf_event_state_PERF_EVENT_STATE_OFF;
        let is_here = |event: &&Rc<Event>| match event.task.get() {
            Some(of) => of == task && event.cpu.is_none_or(|bound| bound == cpu),
            None => event.cpu == Some(cpu),
        };
        let here: Vec<_> = self.open.iter().filter(is_here).filter(is_on).collect();
        // Events of the built-in driver may have the PMU.
        let is_alone = self.others.is_empty();
        if let [event] = here.as_slice()
            && is_alone
            && event.task.get().is_some()
            && event.is_leader()
            && !cannot_count(event.attr().config)
        {
            assert_eq!(
                event.oncpu.get(),
                Some(cpu),
                "event {}: it counts",
                event.id
            );
        }
    }

    pub(super) fn exec(&mut self, cpu: usize) {
        let Some(task) = self.core.running[cpu].get() else {
            return;
        };
        self.core.exec(cpu);
        self.forget_branches(cpu);
        let nip = self.core.task(task).nip.get();
        if let Some(program) = self.programs.get_mut(&task) {
            let is_active = self
                .open
                .iter()
                .any(|event| is_ebb(event) && event.oncpu.get() == Some(cpu));
            with_cpu(|cpu| program.exec(is_active.then_some(&cpu.facility), nip));
        }
        for number in [spr::BESCR, spr::EBBHR, spr::EBBRR] {
            let value = with_cpu(|cpu| cpu.facility.mfspr(number));
            assert_eq!(value, 0, "SPR {number} after execve");
        }
    }

    pub(super) fn offline(&mut self, cpu: usize) {
        if cpu == 0 || !self.core.online[cpu].get() {
            return;
        }
        self.core.enter_kernel(cpu);
        self.core.offline(cpu);
        self.forget_branches(cpu);
        self.core.run_on(0);
    }

    pub(super) fn preempt(&mut self, cpu: usize) {
        // Stacks that were read before may have branches that the BHRB loses now, so check them
        // first.
        self.check_stacks();
        if with_cpu(|cpu| cpu.facility.context.hypervisor) {
            return self.run_guest(cpu);
        }
        with_cpu(Cpu::preempt);
        if !with_cpu(|cpu| cpu.is_dedicated) {
            self.lose_branches(cpu);
        }
    }

    /// Lets the hypervisor of a partition take a CPU away after a number of instructions of the
    /// kernel.
    pub(super) fn preempt_in(&self, cpu: usize, count: u8) {
        with_machine(|machine| {
            machine.cpus[cpu].preempted_in = (!machine.kind.hypervisor).then_some(count);
        });
    }

    /// Handles branches that another partition has left in the BHRB of a CPU. The driver cannot
    /// prevent a program with EBBs from reading them (`Documentation/internals.md`), so the test
    /// clears them there.
    fn lose_branches(&mut self, cpu: usize) {
        self.recorded[cpu].may_lack = true;
        if !self.active(cpu, true).is_empty() {
            with_machine(|machine| machine.cpus[cpu].facility.clrbhrb());
        }
    }

    /// Compares branch stacks. If a CPU was taken away in the meantime, stacks of that CPU may lack
    /// branches from before and after.
    pub(super) fn check_stacks(&mut self) {
        let preempted: [bool; CPUS as usize] = with_machine(|machine| {
            let mut cpus = machine.cpus.iter_mut();
            std::array::from_fn(|_| {
                cpus.next()
                    .is_some_and(|cpu| std::mem::take(&mut cpu.was_preempted))
            })
        });
        let preempted = || (0..).zip(preempted).filter(|(_, is_so)| *is_so);
        preempted().for_each(|(cpu, _)| self.lose_branches(cpu));
        self.check_branches();
        preempted().for_each(|(cpu, _)| self.recorded[cpu].may_lack = true);
    }

    /// Runs a guest under KVM, which leaves the guest's registers in a PMU that the host does not
    /// use.
    fn run_guest(&mut self, cpu: usize) {
        with_cpu(|cpu| {
            cpu.facility.run_guest(&cpu.lppaca, Guest::WITH_EBBS);
            cpu.facility.clrbhrb();
        });
        self.recorded[cpu].may_lack = true;
    }

    /// Lets a CPU without a program idle. The interrupt that ends this turns the run latch on.
    pub(super) fn idle(&self, cpu: usize, count: u8, nmi: bool) {
        if self.core.running[cpu].get().is_some() {
            return;
        }
        if nmi {
            machine::irq_save(machine::MASK_STD);
        }
        with_cpu(|cpu| cpu.facility.context.run = false);
        for _ in 0..count {
            machine::execute(|_| ());
        }
        with_cpu(|cpu| cpu.facility.context.run = true);
        if nmi {
            machine::irq_restore(0);
        }
    }

    /// Calls the hypervisor from the kernel. It takes no interrupt. On bare metal it is the
    /// firmware.
    pub(super) fn hypercall(&self, cpu: usize, count: u8) {
        let before = with_cpu(|cpu| {
            let context = cpu.facility.context;
            (cpu.facility.context.hypervisor, cpu.facility.context.ee) = (true, false);
            context
        });
        branches::branch_in_real_mode();
        for _ in 0..count {
            machine::execute(|_| ());
        }
        with_cpu(|cpu| {
            let context = &mut cpu.facility.context;
            (context.hypervisor, context.ee) = (before.hypervisor, before.ee);
        });
        self.let_interrupts_through(cpu);
    }

    pub(super) fn sleep(&mut self, cpu: usize, deep: bool) {
        // If an event is on the CPU, the kernel does not enter a deep state, which would lose the
        // counter.
        let busy = self.core.has_events(cpu);
        if self.core.running[cpu].get().is_none() && !busy {
            if !with_cpu(|cpu| cpu.facility.context.hypervisor) {
                // In a partition an idle CPU cedes to the hypervisor.
                return self.preempt(cpu);
            }
            let idle = if deep { Idle::Deep } else { Idle::Shallow };
            with_cpu(|cpu| cpu.facility.sleep(idle));
        }
    }

    /// Lets unused counters count on: those of stopped events, and PMC5 or PMC6 beside each other.
    pub(super) fn elapse(&self, cpu: usize) {
        let here = |event: &&Rc<Event>| event.oncpu.get() == Some(cpu);
        let events: Vec<_> = self.open.iter().filter(here).collect();
        if events.is_empty() || events.iter().any(|event| is_ebb(event)) {
            return;
        }
        let on = |index: usize| events.iter().find(|event| event.idx() == index);
        with_cpu(|cpu| {
            let fixed = cpu.facility.mfspr(spr::MMCR0) & mmcr0::FC56 == 0;
            for index in 1..=6 {
                let counts = on(index).map_or(fixed && index > 4, |event| !event.counter_runs());
                if counts {
                    let number = spr::PMC1 + index as u32 - 1;
                    cpu.facility.mtspr(number, NEGATIVE - 3);
                }
            }
        });
    }
}

/// Executes instructions of the kernel.
pub(super) fn kernel_work(count: u8, masked: bool) {
    if masked {
        machine::irq_save(machine::MASK_STD | machine::MASK_PMI);
    }
    with_cpu(|cpu| cpu.facility.context.ee = true);
    machine::take_interrupt();
    branches::branch_in_kernel();
    for _ in 0..count {
        machine::execute(|_| ());
    }
    if masked {
        machine::irq_restore(0);
    }
}

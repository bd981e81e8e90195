// SPDX-License-Identifier: GPL-2.0

//! Operations that run programs and write their registers.

use super::{super::program_code::branch_at, *};

impl World {
    /// Returns the active events on a CPU: EBB events, or all others.
    pub(super) fn active(&self, cpu: usize, ebb: bool) -> Vec<Rc<Event>> {
        let active = |event: &&Rc<Event>| event.oncpu.get() == Some(cpu) && is_ebb(event) == ebb;
        self.open.iter().filter(active).cloned().collect()
    }

    /// Runs some instructions of a program.
    pub(super) fn run(&mut self, cpu: usize, count: u8, cycles: u8, branch: u8) {
        self.core.run_on(cpu);
        let Some(task) = self.core.running[cpu].get() else {
            return;
        };
        let has_group = self.sync_program(cpu, task);
        let data = self.core.task(task).data();
        for number in 0..count {
            let address = with_cpu(|cpu| cpu.nip);
            let takes_branch = number % branch == branch - 1;
            let instruction = Instruction {
                cycles: cycles.into(),
                branch: takes_branch.then(|| branch_at(address).2),
                others: u32::from(number % 3),
                ..instruction_at(address, data + u64::from(number) * 8)
            };
            if takes_branch {
                self.recorded[cpu].push(address);
            }
            let executed = self.execute(cpu, &instruction);
            machine::take_interrupt();
            self.active(cpu, false)
                .iter()
                .for_each(|event| Self::check_period(event));
            self.check_stacks();
            if let Some(program) = self.programs.get_mut(&task).filter(|_| has_group) {
                let next = program.execute(&instruction);
                assert_eq!(executed.next, next, "where the program goes on");
                with_cpu(|cpu| program.check(&cpu.facility));
            }
        }
    }

    /// Executes an instruction of a program that enters the kernel. An alert causes an interrupt
    /// only after `count` instructions there; `Op::Syscall` describes `late` and `masked`.
    pub(super) fn syscall(&mut self, cpu: usize, count: u8, late: u8, masked: bool) {
        if !self.overflow_unseen(cpu) {
            return;
        }
        self.core.enter_kernel(cpu);
        with_cpu(|cpu| {
            if late > 0 && cpu.facility.mfspr(spr::MMCR0) & mmcr0::PMAO != 0 {
                cpu.sample_kernel(late > 1);
            }
        });
        if masked {
            machine::irq_save(machine::MASK_STD | machine::MASK_PMI);
            self.let_interrupts_through(cpu);
        }
        branches::branch_in_kernel();
        for _ in 0..count {
            machine::execute(|_| ());
        }
        if masked {
            machine::irq_restore(0);
        } else {
            self.let_interrupts_through(cpu);
        }
        self.core.leave_kernel(cpu);
    }

    /// Sets the program of a task to that of the group on the CPU, and checks what it finds.
    /// Returns whether there is a group.
    pub(super) fn sync_program(&mut self, cpu: usize, task: usize) -> bool {
        let group = self.active(cpu, true);
        if group.is_empty() {
            return false;
        }
        let in_kernel = self.core.take_fixed_in_kernel(cpu);
        let of_task = |event: &&Rc<Event>| is_ebb(event) && event.task.get() == Some(task);
        let mut others = self.open.iter().filter(of_task);
        let is_new = others.all(|event| !self.seen.contains(&event.id));
        let nip = self.core.task(task).nip.get();
        let (kind, number) = with_machine(|machine| (machine.kind, machine.current));
        with_cpu(|cpu| {
            let program = self
                .programs
                .entry(task)
                .or_insert_with(|| Program::new(kind, cpu.facility.context, nip));
            program.leave();
            if !program.has(&group) {
                program.regroup(&cpu.facility, &group, is_new);
            }
            program.sync(number, task, &cpu.facility, &group, cpu.nip, in_kernel);
        });
        for event in &group {
            self.seen.insert(event.id);
            let members = event.leader().group.borrow();
            self.seen.extend(members.iter().map(|event| event.id));
        }
        true
    }

    /// Executes a program's write to a register.
    pub(super) fn user(&mut self, cpu: usize, write: UserWrite) {
        self.core.run_on(cpu);
        let Some(task) = self.core.running[cpu].get() else {
            return;
        };
        if !self.sync_program(cpu, task) {
            return;
        }
        let Some(program) = self.programs.get_mut(&task) else {
            return;
        };
        // A counter without an event does not belong to the program, so a value would be lost.
        if matches!(write, UserWrite::Counter(counter, _) if !program.has_counter(counter.into())) {
            return;
        }
        // The instruction that does the write. A counter may overflow at it.
        let nip = with_cpu(|cpu| cpu.nip);
        let instruction = Instruction::at(nip);
        let executed = execute_in_program(&instruction);
        machine::take_interrupt();
        assert_eq!(
            executed.next,
            program.execute(&instruction),
            "where the program goes on"
        );
        if executed.ebb {
            return;
        }
        let nip = executed.next;
        let expected = program.write(write, |own| user_write(own, write, nip));
        let found = with_cpu(|cpu| {
            cpu.nip = user_write(&mut cpu.facility, write, nip);
            cpu.nip
        });
        assert_eq!(found, expected, "where the program goes on");
        let processor = with_machine(|machine| machine.kind.processor);
        for (number, value) in writes(write, processor) {
            machine::note_access(true, true, number, value);
        }
        machine::take_interrupt();
        with_cpu(|cpu| program.check(&cpu.facility));
    }
}

/// Returns the privileged numbers and the values of a program's writes.
fn writes(write: UserWrite, processor: Processor) -> Vec<(u32, u64)> {
    let bit = |bits: u8, number: u8, field| if bits >> number & 1 != 0 { field } else { 0 };
    match write {
        UserWrite::Counter(counter, left) => {
            let number = spr::PMC1 + u32::from(counter);
            vec![(number, NEGATIVE - u64::from(left))]
        }
        UserWrite::Mmcr0(bits) => {
            let value = bit(bits, 0, mmcr0::FC) | bit(bits, 1, mmcr0::PMAE);
            // On POWER8E PMAO causes no exception until the driver creates one at a switch.
            let is_made = processor != Processor::Power8E;
            let alert = if is_made {
                bit(bits, 2, mmcr0::PMAO)
            } else {
                0
            };
            vec![(spr::MMCR0, value | alert)]
        }
        UserWrite::Mmcr2(counters) => {
            let frozen = |n: u8| bit(counters, n, mmcr2::FCP0 >> (9 * n));
            vec![(spr::MMCR2, (0..6).map(frozen).sum())]
        }
        UserWrite::Threshold(counter) => {
            vec![(spr::MMCRA, u64::from(counter) << mmcra::THR_CTR_MANT_SHIFT)]
        }
        UserWrite::Bescr(bits) => {
            let value = bit(bits, 0, bescr::GE) | bit(bits, 1, bescr::PME);
            vec![(spr::EBBHR, HANDLER), (spr::BESCR, value)]
        }
        UserWrite::Return | UserWrite::ClearBhrb => vec![],
    }
}

/// Returns the number of a register in problem state.
fn problem_number(number: u32) -> u32 {
    match number {
        spr::BESCRS..=spr::BESCR => number,
        _ => number - spr::PROBLEM,
    }
}

/// Writes a register as a program with EBBs. Returns the address where the program continues:
/// `nip`, unless it returns from its handler or gets an EBB.
fn user_write(facility: &mut Facility, write: UserWrite, nip: u64) -> u64 {
    match write {
        UserWrite::Return => return return_from_handler(facility, nip),
        UserWrite::ClearBhrb => {
            let cleared = facility.problem_clrbhrb();
            assert_eq!(cleared, Ok(()), "a program with a group clears the BHRB");
        }
        _ => {}
    }
    for (number, value) in writes(write, facility.processor()) {
        let written = facility.problem_mtspr(problem_number(number), value);
        assert_eq!(
            written,
            Ok(()),
            "a program with a group writes its registers: {write:?}"
        );
    }
    facility.enter_problem_state(nip)
}

/// Resets everything and returns from a handler. Returns the address where the program continues:
/// `nip` if no handler runs.
fn return_from_handler(facility: &mut Facility, nip: u64) -> u64 {
    // Before the first EBB, EBBRR is 0. No program is there, because an address of 0 in the PMU
    // means none.
    let in_handler = facility.mfspr(spr::BESCR) & bescr::GE == 0;
    if !in_handler || facility.mfspr(spr::EBBRR) == 0 {
        return nip;
    }
    for number in spr::PMC1..=spr::PMC6 {
        if facility.is_negative(number) {
            let _ = facility.problem_mtspr(problem_number(number), NEGATIVE - 20);
        }
    }
    let again = facility
        .problem_mtspr(problem_number(spr::MMCR0), mmcr0::PMAE)
        .and_then(|()| facility.problem_mtspr(spr::BESCRR, bescr::PMEO))
        .and_then(|()| facility.problem_mtspr(spr::BESCRS, bescr::PME));
    assert_eq!(again, Ok(()), "a program with a group writes its registers");
    facility.rfebb(true).expect("no transaction")
}

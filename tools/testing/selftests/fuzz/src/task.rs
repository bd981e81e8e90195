// SPDX-License-Identifier: GPL-2.0
//! A process, or a thread of one, that does anything with events and registers, step by step, and
//! after each step checks what it can see.

use std::sync::atomic::Ordering::Relaxed;

use ebb::reg::Bescr;
use ebb::reg::Mmcr0;
use ebb_selftests::session;
use ktap::Failure;
use ktap::Outcome;
use ktap::check;

use crate::Options;
use crate::action::Action;
use crate::attr::Limits;
use crate::children;
use crate::events;
use crate::events::Events;
use crate::handler;
use crate::marks;
use crate::marks::Page;
use crate::registers;
use crate::registers::EBB;
use crate::tally::Count;
use crate::tally::Tally;
use crate::view;
use crate::view::Counters;
use pmu_selftests::random::Random;

/// Data that a new thread takes over from its process.
pub struct Thread(u64, &'static Tally, Options, Page);

impl Thread {
    /// Creates a task without events of its own; the process's main task counts the EBBs.
    pub fn task(self) -> Task {
        let mut task = Task::new(self.0, self.1, self.2, self.3);
        task.events.had_ebb = true;
        task.counts_ebbs = false;
        task
    }
}

/// State of a process or thread.
pub struct Task {
    /// Number that determines the marks.
    pub number: u64,
    /// Counts of all processes.
    pub tally: &'static Tally,
    /// Options of the whole run, except that this process may have no EBBs.
    pub options: Options,
    /// Open events.
    pub events: Events,
    /// Processes to wait for.
    pub children: Vec<libc::pid_t>,
    /// Page with branches.
    pub page: Page,
    /// Last value written to BESCR. Bits of GE and PME that are clear in it must stay clear.
    bescr: Bescr,
    /// EBBs of this process that are in the tally.
    counted: u64,
    counts_ebbs: bool,
    /// Counters at the last look.
    last_look: Counters,
}

impl Task {
    /// Creates the task of a process that has just begun, and that has mapped its page.
    pub fn new(number: u64, tally: &'static Tally, options: Options, page: Page) -> Self {
        Self {
            number,
            tally,
            options,
            events: Events::new(number, options.pace),
            children: Vec::new(),
            page,
            bescr: Bescr(0),
            counted: 0,
            counts_ebbs: true,
            last_look: Counters::default(),
        }
    }

    /// Returns what another thread of this process begins with.
    pub fn thread(&self) -> Thread {
        Thread(self.number, self.tally, self.options, self.page)
    }

    /// Fails unless the EBB registers are as in a new program, process or thread.
    pub fn check_new(&self) -> Outcome {
        if !self.options.unchecked {
            let [ebbhr, ebbrr, bescr] = EBB.each_ref().map(|register| register.read().unwrap_or(0));
            check!(
                [ebbhr, ebbrr, bescr] == [0; 3],
                "new: EBBHR {ebbhr:#x}, EBBRR {ebbrr:#x}, BESCR {bescr:#x}"
            );
        }
        Ok(())
    }

    /// Does `steps` steps; if `alone`, skips those that take other processes and threads.
    pub fn run(&mut self, seed: u64, steps: u64, alone: bool) -> Outcome {
        for step in 0..steps {
            let mut random = Random::new(seed, &[step]);
            let action = Action::any(&mut random);
            self.ready();
            self.step(action, &mut random, alone)
                .and_then(|()| self.check(&mut random))
                .map_err(|failure| self.at(step, action, failure))?;
            self.tally.entry(self.number).add(Count::Steps, 1);
        }
        Ok(())
    }

    /// Turns EBBs off, waits for the children and closes the events.
    pub fn end(&mut self) -> Outcome {
        handler::write_bescr(Bescr(0));
        self.bescr = Bescr(0);
        self.count_ebbs();
        let ended = children::wait(self);
        self.events.look(self.tally)?;
        self.events.close_all();
        ended
    }

    /// Adapts the state in a child after a fork: it has events of its parent, but no EBBs.
    pub fn forked(&mut self) {
        handler::forget();
        self.counted = 0;
        self.children.clear();
        self.events.forked();
    }

    /// Restores EBBHR, which the kernel sets to 0 when the last EBB event is closed, by this or
    /// another process: before GE is set there must be a handler.
    fn ready(&mut self) {
        if EBB[0].read() != Some(handler::address()) {
            handler::install(handler::address());
            self.bescr = Bescr(0);
        }
    }

    /// Turns EBBs off until the next `Arm`, for example before the C library blocks signals.
    pub fn without_ebbs(&mut self) {
        handler::write_bescr(Bescr(0));
        self.bescr = Bescr(0);
    }

    fn limits(&self) -> Limits {
        Limits {
            period: self.options.least_period,
            no_ebb: self.options.no_ebb,
        }
    }

    fn step(&mut self, action: Action, random: &mut Random, alone: bool) -> Outcome {
        match action {
            Action::Open => {
                self.events.open(random, self.limits(), self.tally);
                // Branches for the event to count.
                self.page.branch(random.up_to_bits(11));
            }
            Action::Close => self.events.close(random),
            Action::Control => self.events.control(random, self.limits()),
            Action::ControlAll => Events::control_all(random),
            Action::Read => self.events.read(random),
            Action::Map => self.events.map(random),
            Action::Look => self.events.look(self.tally)?,
            Action::Notify => self.events.notify(random),
            Action::Mark => self.mark(random),
            Action::Arm => self.arm(random),
            Action::Registers => self.write_registers(random),
            Action::Branches => self.page.branch(random.up_to_bits(10)),
            Action::ClearBranches => registers::clear_bhrb(),
            Action::Return => {
                let enable = random.once_in(2);
                handler::return_to_here(enable);
                self.bescr = if enable { Bescr::GE } else { Bescr(0) };
            }
            Action::Bescr => {
                let bescr = Bescr(random.any() & (Bescr::GE | Bescr::PME | Bescr::PMEO).0);
                // A program that sets PMEO may get an EBB for that alone; in QEMU, an EBB that the
                // CPU has latched for another program. And in QEMU, PMEO with PME but without GE
                // looks as if QEMU had made an EBB without taking the branch, which the driver then
                // repeats.
                let without_branch = Bescr::PME | Bescr::PMEO;
                let no_pmeo = !self.events.had_ebb
                    || bescr == without_branch && self.options.pace.is_of_emulator();
                self.bescr = match no_pmeo {
                    true => bescr.without(Bescr::PMEO),
                    false => bescr,
                };
                handler::write_bescr(self.bescr);
                // If both are set an EBB comes, and its handler turns PME on.
                if self.bescr.has(Bescr::GE) && self.bescr.has(Bescr::PMEO) {
                    self.bescr = self.bescr | Bescr::PME;
                }
            }
            Action::Address => self.address_of_no_handler()?,
            Action::Work => session::work_for(random.up_to_bits(17)),
            Action::Calls => {
                for _ in 0..random.below(50) {
                    // SAFETY: The system call has no effect.
                    unsafe { libc::getppid() };
                }
            }
            Action::Yield => {
                // SAFETY: The call takes no arguments.
                unsafe { libc::sched_yield() };
            }
            Action::Sleep => ktap::process::give_way(),
            Action::Move => events::move_to(random, self.options.cpus),
            Action::Timer => registers::set_timer(random.up_to_bits(13)),
            Action::Signal => {
                // SAFETY: This process survives the signal. It does not call `raise`, which blocks
                // signals.
                unsafe { libc::kill(libc::getpid(), random.pick(&[libc::SIGUSR1, libc::SIGHUP])) };
            }
            Action::Fork | Action::Exec | Action::User | Action::Thread | Action::Trace
                if alone => {}
            Action::Fork => children::fork(self, random, false)?,
            Action::User => children::fork(self, random, true)?,
            Action::Exec => children::exec(self, random)?,
            Action::Thread => children::thread(self, random)?,
            Action::Trace => children::trace(self, random)?,
        }
        Ok(())
    }

    /// Leaves this process's marks in all registers that it may write.
    fn mark(&mut self, random: &mut Random) {
        let enabled = self.events.enable_ebb();
        let (which, mmcr2, sleep) = (random.any(), random.once_in(2), random.once_in(2));
        let stops = random.once_in(2);
        if enabled {
            self.tally.entry(self.number).add(Count::Marks, 1);
        }
        for (n, pmc) in registers::PMCS.iter().enumerate() {
            if which >> n & 1 == 1 {
                // SAFETY: A counter is neither BESCR nor EBBHR nor EBBRR.
                unsafe { pmc.write(marks::counter(self.number)) };
            }
        }
        if mmcr2 {
            // SAFETY: MMCR2 is neither BESCR nor EBBHR nor EBBRR.
            unsafe { registers::MMCR2[0].write(marks::mmcr2(self.number)) };
        }
        // Branches are recorded while alerts are enabled, and are visible while they are not.
        if stops {
            // SAFETY: MMCR0 is neither BESCR nor EBBHR nor EBBRR.
            unsafe { registers::MMCR0[0].write(Mmcr0::PMAE.0) };
        }
        self.page.branch(8);
        if stops {
            // SAFETY: MMCR0 is neither BESCR nor EBBHR nor EBBRR.
            unsafe { registers::MMCR0[0].write(Mmcr0::FC.0) };
        }
        if sleep {
            // Other processes leave their marks in the meantime.
            ktap::process::give_way();
        }
    }

    /// Enables EBBs with a random period, of a counter that may have no event.
    fn arm(&mut self, random: &mut Random) {
        let _ = self.events.enable_ebb();
        let period = random.up_to_bits(14) as u32;
        let first = random.up_to_bits(10) as u32;
        handler::allow(
            random.up_to_bits(7),
            0x8000_0000 - period.max(self.options.least_ebb),
        );
        self.bescr = Bescr::GE | Bescr::PME;
        handler::write_bescr(self.bescr);
        let pmc = &registers::PMCS[random.below(6) as usize];
        // SAFETY: Neither is one of BESCR, EBBHR and EBBRR.
        unsafe {
            pmc.write((0x8000_0000 - first.max(1)).into());
            registers::MMCR0[0].write(Mmcr0::PMAE.0);
        }
        session::work_for(random.up_to_bits(14));
    }

    /// Writes random values to some registers.
    fn write_registers(&mut self, random: &mut Random) {
        for _ in 0..1 + random.below(6) {
            let value = random.any() >> random.below(64);
            // SAFETY: None of these registers changes where the program continues.
            unsafe {
                match random.below(8) {
                    // Values without the mark of another process.
                    0..3 => random
                        .pick(&[
                            &registers::PMCS[0],
                            &registers::PMCS[3],
                            &registers::PMCS[5],
                        ])
                        .write(marks::unmarked(value)),
                    3 => registers::MMCR0[0].write(value),
                    // In the bits that programs may change, only this process's mark.
                    4 => registers::MMCR2[0]
                        .write(value & !ebb::reg::Mmcr2::USER.0 | marks::mmcr2(self.number)),
                    5 => registers::ADDRESSES[random.below(2) as usize].write(value),
                    _ => {
                        let other = random.below(registers::OTHERS.len() as u64) as usize;
                        registers::OTHERS[other].write(value);
                    }
                }
            }
        }
    }

    /// Checks that EBBHR and EBBRR keep an address that is no handler's over task switches.
    fn address_of_no_handler(&mut self) -> Outcome {
        let mark = marks::address(self.number);
        handler::install(mark);
        self.bescr = Bescr(0);
        // SAFETY: No handler runs, as GE is off.
        unsafe { EBB[1].write(mark) };
        ktap::process::give_way();
        let (ebbhr, ebbrr) = (EBB[0].read(), EBB[1].read());
        let ours = [Some(mark), Some(0)];
        check!(
            self.options.unchecked || ours.contains(&ebbhr) && ours.contains(&ebbrr),
            "EBBHR {ebbhr:x?} and EBBRR {ebbrr:x?} are not {mark:#x}"
        );
        handler::install(handler::address());
        Ok(())
    }

    /// Fails if this process sees data of another process.
    fn check(&mut self, random: &mut Random) -> Outcome {
        let entry = self.tally.entry(self.number);
        if self.options.unchecked {
            self.count_ebbs();
            return Ok(());
        }
        let kernel_mmcr2 = entry.kernel_mmcr2.load(Relaxed);
        let seen = view::look(self.number, self.options.pace, kernel_mmcr2, random)?;
        self.count_ebbs();
        check!(
            handler::count() == 0 || self.events.had_ebb || entry.has_ebb_by_other(),
            "an EBB without an EBB event"
        );
        entry.add(Count::Branches, seen.branches);
        if seen.counters.seen() > 0 {
            entry.add(Count::Looks, 1);
            entry.add(Count::Told, seen.told);
        }
        entry
            .furthest
            .fetch_max(seen.counters.furthest(self.number), Relaxed);
        self.last_look = seen.counters;
        let on = Bescr(EBB[2].read().unwrap_or(0)).without(self.bescr);
        check!(
            !on.has(Bescr::GE) && !on.has(Bescr::PME),
            "{on:?} was not turned on"
        );
        Ok(())
    }

    /// Adds to a failure where it was, the registers, and the counters at the last look.
    fn at(&self, step: u64, action: Action, failure: Failure) -> Failure {
        match failure {
            Failure::Fail(why) => {
                // SAFETY: The call takes no pointers.
                let cpu = unsafe { libc::sched_getcpu() };
                let (run, last, events) =
                    (marks::time_run(), self.last_look, self.events.describe());
                let mut text = format!(
                    "step {step}, {action:?}: {why}\n  on CPU {cpu}, run {run} ns, after{last}\n  \
                     events:{events}\n  now:"
                );
                for register in registers::all() {
                    if let Some(value) = register.read() {
                        text += &format!(" {} {value:x}", register.name);
                    }
                }
                Failure::Fail(text)
            }
            skip => skip,
        }
    }

    fn count_ebbs(&mut self) {
        if !self.counts_ebbs {
            return;
        }
        let count = handler::count();
        self.tally
            .entry(self.number)
            .add(Count::Ebbs, count.saturating_sub(self.counted));
        self.counted = count;
    }
}

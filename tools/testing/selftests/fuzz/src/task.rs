// SPDX-License-Identifier: GPL-2.0
//! A process, or a thread of one, that does anything with events and registers, one step after
//! another, and looks at what it can see after each.

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

/// What a thread has of its process.
pub struct Thread(u64, &'static Tally, Options, Page);

impl Thread {
    /// A task without events of its own; its process counts the EBBs.
    pub fn task(self) -> Task {
        let mut task = Task::new(self.0, self.1, self.2, self.3);
        task.events.had_ebb = true;
        task.counts_ebbs = false;
        task
    }
}

/// What a process has.
pub struct Task {
    /// By which its marks are known.
    pub number: u64,
    /// What all count.
    pub tally: &'static Tally,
    /// Of the whole run, but that this one may have no EBBs.
    pub options: Options,
    /// Its events.
    pub events: Events,
    /// Processes to wait for.
    pub children: Vec<libc::pid_t>,
    /// Its branches.
    pub page: Page,
    /// What it wrote to BESCR: of GE and PME, what it has off stays off.
    bescr: Bescr,
    /// EBBs of this process that are in the tally.
    counted: u64,
    counts_ebbs: bool,
    /// The counters at the last look.
    last_look: Counters,
}

impl Task {
    /// In a process that has just begun, whose page with branches is there.
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

    /// What another thread of this process begins with.
    pub fn thread(&self) -> Thread {
        Thread(self.number, self.tally, self.options, self.page)
    }

    /// Fails unless EBBs are as in a new program, process or thread.
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

    /// Does `steps` steps; `alone` those without other processes and threads.
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

    /// The end: EBBs off, events closed, children waited for.
    pub fn end(&mut self) -> Outcome {
        handler::write_bescr(Bescr(0));
        self.bescr = Bescr(0);
        self.count_ebbs();
        let ended = children::wait(self);
        self.events.look(self.tally)?;
        self.events.close_all();
        ended
    }

    /// In the child after a fork: it has events of its parent, and nothing of EBBs.
    pub fn forked(&mut self) {
        handler::forget();
        self.counted = 0;
        self.children.clear();
        self.events.forked();
    }

    /// EBBHR is 0 once the last EBB event was closed, by whomever; with GE there has to be a
    /// handler.
    fn ready(&mut self) {
        if EBB[0].read() != Some(handler::address()) {
            handler::install(handler::address());
            self.bescr = Bescr(0);
        }
    }

    /// EBBs off until the next `Arm`, such as where the C library blocks signals.
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
                // Something for it to count.
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
                // A program that sets PMEO may get an EBB by that alone; in QEMU one that the CPU has
                // latched for another. And one that has it with PME but without GE is there like
                // one that QEMU has made an EBB for without the branch, which the driver repeats.
                let without_branch = Bescr::PME | Bescr::PMEO;
                let no_pmeo = !self.events.had_ebb
                    || bescr == without_branch && self.options.pace.is_of_emulator();
                self.bescr = match no_pmeo {
                    true => bescr.without(Bescr::PMEO),
                    false => bescr,
                };
                handler::write_bescr(self.bescr);
                // With both on an EBB comes, whose handler turns PME on.
                if self.bescr.has(Bescr::GE) && self.bescr.has(Bescr::PMEO) {
                    self.bescr = self.bescr | Bescr::PME;
                }
            }
            Action::Address => self.address_of_no_handler()?,
            Action::Work => session::work_for(random.up_to_bits(17)),
            Action::Calls => {
                for _ in 0..random.below(50) {
                    // SAFETY: a system call without effect.
                    unsafe { libc::getppid() };
                }
            }
            Action::Yield => {
                // SAFETY: takes nothing.
                unsafe { libc::sched_yield() };
            }
            Action::Sleep => ktap::process::give_way(),
            Action::Move => events::move_to(random, self.options.cpus),
            Action::Timer => registers::set_timer(random.up_to_bits(13)),
            Action::Signal => {
                // SAFETY: this process survives the signal. Not `raise`, which blocks signals.
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

    /// Leaves this process's marks in all that it may write.
    fn mark(&mut self, random: &mut Random) {
        let enabled = self.events.enable_ebb();
        let (which, mmcr2, sleep) = (random.any(), random.once_in(2), random.once_in(2));
        let stops = random.once_in(2);
        if enabled {
            self.tally.entry(self.number).add(Count::Marks, 1);
        }
        for (n, pmc) in registers::PMCS.iter().enumerate() {
            if which >> n & 1 == 1 {
                // SAFETY: a counter is no register of BESCR and EBBHR.
                unsafe { pmc.write(marks::counter(self.number)) };
            }
        }
        if mmcr2 {
            // SAFETY: as above.
            unsafe { registers::MMCR2[0].write(marks::mmcr2(self.number)) };
        }
        // Branches are recorded while alerts are enabled, and can be seen while they are not.
        if stops {
            // SAFETY: as above.
            unsafe { registers::MMCR0[0].write(Mmcr0::PMAE.0) };
        }
        self.page.branch(8);
        if stops {
            // SAFETY: as above.
            unsafe { registers::MMCR0[0].write(Mmcr0::FC.0) };
        }
        if sleep {
            // Others leave theirs meanwhile.
            ktap::process::give_way();
        }
    }

    /// Lets EBBs come, from any period on, of counters that may be no event's.
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
        // SAFETY: neither is a register of BESCR and EBBHR.
        unsafe {
            pmc.write((0x8000_0000 - first.max(1)).into());
            registers::MMCR0[0].write(Mmcr0::PMAE.0);
        }
        session::work_for(random.up_to_bits(14));
    }

    /// Writes anything to some registers.
    fn write_registers(&mut self, random: &mut Random) {
        for _ in 0..1 + random.below(6) {
            let value = random.any() >> random.below(64);
            // SAFETY: none of these is a register that says where the program goes on.
            unsafe {
                match random.below(8) {
                    // No mark of another process.
                    0..3 => random
                        .pick(&[
                            &registers::PMCS[0],
                            &registers::PMCS[3],
                            &registers::PMCS[5],
                        ])
                        .write(marks::unmarked(value)),
                    3 => registers::MMCR0[0].write(value),
                    // Of the bits of programs its own.
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

    /// EBBHR and EBBRR keep what is no address of a handler, over switches.
    fn address_of_no_handler(&mut self) -> Outcome {
        let mark = marks::address(self.number);
        handler::install(mark);
        self.bescr = Bescr(0);
        // SAFETY: no handler runs, as GE is off.
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

    /// Fails if this process sees what is not its own.
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

    /// A failure with where it was, what there is and what came before.
    fn at(&self, step: u64, action: Action, failure: Failure) -> Failure {
        match failure {
            Failure::Fail(why) => {
                // SAFETY: a question without pointers.
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

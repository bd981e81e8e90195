// SPDX-License-Identifier: GPL-2.0
//! A process of the stress test: its event and its rounds.

use crate::Options;
use crate::handler;
use crate::tally::Entry;
use crate::ways::Way;
use ebb::Event;
use ebb::Pmc;
use ebb::Save;
use ebb::Session;
use ebb::config;
use ebb::config::Ifm;
use ebb::pmc;
use ebb::reg::Bescr;
use ebb::reg::Mmcr0;
use ebb::reg::Mmcr2;
use ebb_selftests::session;
use ktap::Failure;
use ktap::OrFail;
use ktap::Outcome;
use ktap::check;
use ktap::cpu;
use ktap::process;
use ktap::process::Link;
use ktap::process::Peer;
use pmu_selftests::random::Random;
use std::time::Duration;
use std::time::Instant;

/// Limits for an EBB that did not come in the way of the round: steps of work alone, each of about
/// a thousand instructions, and time. Then it counts as lost. A pending EBB may come late to a
/// process that never keeps the CPU for long, or if the kernel's timers are late: a kernel that
/// checks itself, in an emulator with many CPUs.
const PATIENCE: u32 = 5000;
const PATIENCE_TIME: Duration = Duration::from_millis(500);

/// PERF_EVENT_IOC_ENABLE and _DISABLE, as powerpc numbers them.
const IOC_ENABLE: libc::Ioctl = 0x2000_2400;
const IOC_DISABLE: libc::Ioctl = 0x2000_2401;

/// Codes of cycles, of which a process uses one.
const CYCLES: [u64; 5] = [0x1001e, 0x2001e, 0x3001e, 0x4001e, 0x600f4];

/// Codes of instructions, of which a process uses one.
const INSTRUCTIONS: [u64; 5] = [0x10002, 0x20002, 0x30002, 0x40002, 0x500fa];

struct Task {
    code: u64,
    own: Pmc,
    /// Code of a second event, whose counter counts too and never overflows.
    member: Option<u64>,
    /// Value of MMCR2 that identifies the process.
    tag: Mmcr2,
    lossy: bool,
    /// Filter of the BHRB, if the event uses it.
    ifm: Option<Ifm>,
    /// Events of the group. The leader is last, so that it is dropped last.
    events: Vec<Event>,
    /// Whether `session` is used instead of `events` (`--library`).
    library: bool,
    session: Option<Session>,
    random: Random,
    cpus: usize,
}

/// Runs a process of the stress test: opens its event, waits for the start and does its rounds.
pub fn run(number: usize, options: &Options, entry: &Entry, parent: &mut Link) -> Outcome {
    let mut task = Task::new(number, options)?;
    // Handles a signal by doing nothing.
    extern "C" fn ignore(_: libc::c_int) {}
    // SAFETY: The signal handler does nothing.
    unsafe { libc::signal(libc::SIGUSR1, ignore as *const () as usize) };
    task.open()?;
    parent.tell()?;
    parent.listen()?;
    for _ in 0..options.rounds {
        let any = Way::ALL[task.random.below(Way::ALL.len() as u64) as usize];
        let way = options.only.unwrap_or(any);
        let period = task.period();
        let (asked, came) = task.round(way, period, options, entry)?;
        entry.round(way, asked, came);
        let foreign = entry.foreign();
        check!(foreign == 0, "{way:?}: a foreign EBB, {}", task.state());
        check!(
            came == asked || options.lossy,
            "{way:?}: {came} of {asked} EBBs came, period {period}, {}",
            task.state()
        );
        if came != asked {
            task.reopen(entry)?;
        }
    }
    ebb::disable();
    task.session = None;
    entry.add_spurious();
    check!(entry.foreign() == 0, "spurious EBBs");
    Ok(())
}

impl Task {
    fn new(number: usize, options: &Options) -> Result<Self, Failure> {
        let codes = if options.instructions {
            INSTRUCTIONS
        } else {
            CYCLES
        };
        let code = codes[number % codes.len()];
        let member = (number % 4 == 3).then_some(codes[(number + 1) % 4]);
        let member = member.filter(|&other| other != code);
        let own = session::pmc_of(code)?;
        let other = session::pmc_of(member.unwrap_or(code))?;
        // SAFETY: The call takes no pointers.
        let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
        Ok(Self {
            code,
            own,
            member,
            tag: session::tag(number, &[own, other]),
            lossy: options.lossy,
            ifm: match number % 8 {
                6 => Some(Ifm::All),
                7 => Some(Ifm::Calls),
                _ => None,
            },
            events: Vec::new(),
            library: options.library,
            session: None,
            random: Random::new(options.seed, &[number as u64]),
            cpus: usize::try_from(cpus).unwrap_or(1),
        })
    }

    /// Opens the event and writes the tag; the counters are frozen.
    fn open(&mut self) -> Outcome {
        if self.library {
            return self.open_session();
        }
        handler::set_own(self.own, self.tag);
        let branches = self.ifm.map_or(0, config::bhrb);
        let leader = ebb::event(self.code | branches).open()?;
        if let Some(code) = self.member {
            self.events
                .push(ebb::member(code | branches).open_with(&leader)?);
        }
        session::install(handler::own_only)?;
        leader.enable()?;
        leader.check_scheduled()?;
        self.events.push(leader);
        pmc::freeze();
        self.tag.write();
        Ok(())
    }

    /// Opens a session, which is stopped after its first EBB, as it is after a round.
    fn open_session(&mut self) -> Outcome {
        handler::set_own(self.own, Mmcr2(0));
        let session = Session::open_with(&format!("{:#x}", self.code), 1000, self.ifm)?;
        if let Some(code) = self.member {
            session.add(&format!("{code:#x}"), 0)?;
        }
        handler::want(1);
        handler::closed(false);
        // SAFETY: The handler only reads registers and accesses atomics.
        unsafe { session.start(Save::Full, handler::own_only)? };
        self.session = Some(session);
        wait_with_work(PATIENCE_TIME);
        check!(handler::wanted() == 0 || self.lossy, "no first EBB");
        handler::want(0);
        handler::set_own(self.own, self.tag);
        self.tag.write();
        Ok(())
    }

    /// Turns the event off and on.
    fn off_and_on(&self) -> Outcome {
        let Some(session) = &self.session else {
            self.leader()?.disable()?;
            return Ok(self.leader()?.enable()?);
        };
        for request in [IOC_DISABLE, IOC_ENABLE] {
            // SAFETY: Neither request takes a pointer; the descriptor is the session's own.
            ktap::os_result(unsafe { libc::ioctl(session.descriptor(), request, 0) })?;
        }
        Ok(())
    }

    /// Returns the leader of the group.
    fn leader(&self) -> Result<&Event, Failure> {
        self.events.last().ok_or("no event").or_fail("event")
    }

    fn reopen(&mut self, entry: &Entry) -> Outcome {
        self.events.clear();
        self.session = None;
        entry.add_spurious();
        handler::want(0);
        self.open()
    }

    /// Returns a period from 64 to 32767, short ones as often as long ones.
    fn period(&mut self) -> u32 {
        let least = 64 << self.random.below(9);
        (least + self.random.below(least)) as u32
    }

    /// Starts the counter `period` before its overflow, with BESCR `gate`, and requests `n` EBBs.
    fn arm(&mut self, n: u32, period: u32, gate: Bescr) -> Outcome {
        handler::want(n);
        if let Some(session) = &self.session {
            session.set_period(0, period.into(), 0)?;
            return Ok(session.resume()?);
        }
        handler::closed(!gate.has(Bescr::GE));
        if let Some(code) = self.member {
            session::pmc_of(code)?.write(0);
        }
        ebb::start(self.own, period.into())?;
        // SAFETY: `open` has installed the handler.
        unsafe { gate.write() };
        Mmcr0::PMAE.write();
        Ok(())
    }

    /// Runs one round; returns how many EBBs were requested, and how many came.
    fn round(
        &mut self,
        way: Way,
        period: u32,
        options: &Options,
        entry: &Entry,
    ) -> Result<(u32, u32), Failure> {
        let asked = way.ebbs();
        let open = Bescr::GE | Bescr::PME;
        match way {
            Way::Reopen | Way::ReopenGate => {
                let gate = if way == Way::Reopen { open } else { Bescr::PME };
                self.arm(1, period, gate)?;
                session::work_for(self.random.below(u64::from(2 * period)) + 1);
                let came = 1 - handler::wanted();
                self.events.clear();
                self.session = None;
                // From here on an EBB would find the registers inaccessible, and trap.
                session::work();
                self.reopen(entry)?;
                return Ok((came, came));
            }
            Way::Gate | Way::GateYield if !self.library => {
                self.arm(asked, period, Bescr::PME)?;
                for _ in 0..2 * period / 1000 + 2 {
                    session::work();
                    if way == Way::GateYield {
                        yield_cpu();
                    }
                }
                handler::closed(false);
                // SAFETY: `open` has installed the handler.
                unsafe { open.write() };
            }
            _ => self.arm(asked, period, open)?,
        }
        let mut steps = way.steps() + asked * (period / 500 + 2);
        while handler::wanted() > 0 && steps > 0 {
            self.step(way, options)?;
            session::work();
            steps -= 1;
        }
        if way == Way::Migrate {
            let _ = cpu::set_affinity(0, 0..self.cpus);
        }
        if handler::wanted() > 0 {
            entry.late(way);
            wait_with_work(if self.lossy {
                Duration::ZERO
            } else {
                PATIENCE_TIME
            });
        }
        Ok((asked, asked - handler::wanted()))
    }

    /// Does one step of passing the time.
    fn step(&mut self, way: Way, options: &Options) -> Outcome {
        match way {
            Way::Calls => {
                for _ in 0..5 {
                    // SAFETY: The system call has no effect.
                    unsafe { libc::getppid() };
                }
            }
            Way::Gate | Way::GateYield if self.library => self.pause_and_resume(way)?,
            Way::Yield | Way::GateYield => yield_cpu(),
            Way::Sleep => process::give_way(),
            Way::Migrate => {
                let cpu = self.random.below(self.cpus as u64) as usize;
                // The process continues on its CPU if the chosen one is offline.
                let _ = cpu::pin_to(cpu);
            }
            Way::Disable => self.off_and_on()?,
            Way::Prctl => {
                ebb::disable_all()?;
                ebb::enable_all()?;
            }
            // SAFETY: The signal has a handler, which does nothing.
            Way::Signal => unsafe {
                libc::raise(libc::SIGUSR1);
            },
            Way::Fork => Peer::spawn(|_| Ok(()))?.join()?,
            Way::Mortal => {
                let (period, rest) = (self.period(), self.random.below(4));
                Peer::spawn(|_| mortal(period, rest, options))?.join()?;
            }
            Way::Work | Way::Stream | Way::Gate | Way::Reopen | Way::ReopenGate => {}
        }
        Ok(())
    }

    /// Pauses and resumes the session; no EBB may come in between. After its last EBB the session
    /// has stopped itself, and would count again if it were resumed.
    fn pause_and_resume(&self, way: Way) -> Outcome {
        let Some(session) = &self.session else {
            return Ok(());
        };
        session.pause()?;
        handler::closed(true);
        session::work();
        if way == Way::GateYield {
            yield_cpu();
        }
        handler::closed(false);
        if handler::wanted() > 0 {
            session.resume()?;
        }
        Ok(())
    }

    /// Describes what can be read of the PMU.
    fn state(&self) -> String {
        let (mmcr0, mmcr2) = (Mmcr0::read(), Mmcr2::read());
        let values = Pmc::ALL.map(Pmc::read);
        let (own, tag, bescr, foreign) =
            (self.own, self.tag, Bescr::read(), handler::all_foreign());
        format!(
            "own {own:?} tag {tag:?}: {mmcr0:?} {mmcr2:?} {bescr:?} PMCs {values:x?} foreign {foreign:?}"
        )
    }
}

/// Works until all requested EBBs have come, for [`PATIENCE`] steps and at least `time`.
fn wait_with_work(time: Duration) {
    let begin = Instant::now();
    loop {
        for _ in 0..PATIENCE {
            if handler::wanted() == 0 {
                return;
            }
            session::work();
        }
        if begin.elapsed() >= time {
            return;
        }
    }
}

/// Runs a process that ends about when an EBB of its own is pending.
fn mortal(period: u32, rest: u64, options: &Options) -> Outcome {
    let mut task = Task::new(0, options)?;
    task.open()?;
    task.arm(1, period, Bescr::GE | Bescr::PME)?;
    session::work_for(u64::from(period) * rest / 2);
    let foreign = handler::all_foreign();
    // Half of these processes end without closing the event first.
    if rest % 2 == 1 {
        std::mem::forget(task);
    }
    check!(foreign.is_empty(), "child: {foreign:?}");
    Ok(())
}

fn yield_cpu() {
    // SAFETY: The system call takes no pointers.
    unsafe { libc::sched_yield() };
}

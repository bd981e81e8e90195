// SPDX-License-Identifier: GPL-2.0
//! Many processes that do anything to the PMU that a program can, EBBs included, each by numbers
//! that follow from a seed.
//!
//! ```text
//! pmu_fuzz [--processes N] [--bystanders N] [--lives N] [--steps N] [--seed N]
//!          [--least-period N] [--least-ebb N] [--no-ebb] [--unchecked] [--release]
//! ```
//!
//! Each process has some lives, one after another, each in a process of its own: in a life it opens
//! events of all kinds, for itself, for others and for CPUs, changes them, reads and writes every
//! register that has to do with the PMU and with EBBs, takes EBBs, forks, executes itself, changes
//! its user, traces (`task.rs`). Every second one is no root. Wherever a process can, it leaves its
//! own marks (`marks.rs`); a mark of somebody else's that it sees is a failure, and so is an end
//! other than its own. Bystanders have no EBB event and see nothing of the PMU, and no EBB.
//!
//! What is asked for depends on the seed only. If something has not happened at all by the end, each
//! process has as many lives again, and so on ([`ROUNDS`]).
//!
//! The program prints "ready" when it has begun, "total" when it is done, and holds an event until
//! its stdin ends, so that the module stays; not with `--release`. `--unchecked` is for a driver
//! that is known to show marks, `--no-ebb` leaves EBBs out.
//!
//! Exit status: 0 nothing found, 1 something was, 2 wrong arguments, 4 no EBB on this machine.

mod action;
mod attr;
mod bystander;
mod children;
mod events;
mod handler;
mod marks;
mod registers;
mod tally;
mod task;
mod view;

use std::io::Write;
use std::ops::Range;
use std::os::fd::IntoRawFd;
use std::os::fd::RawFd;
use std::process::exit;
use std::sync::atomic::Ordering::Relaxed;

use ebb_selftests::session;
use ebb_selftests::tracee::watch;
use ktap::Failure;
use ktap::Outcome;
use ktap::check;
use ktap::process::NOBODY;
use ktap::process::Peer;
use ktap::process::become_user;
use perf_event::Attr;

use crate::marks::NUMBERS;
use crate::marks::Pace;
use crate::marks::Page;
use crate::tally::Count;
use crate::tally::Tally;
use crate::task::Task;
use pmu_selftests::random::Random;

const USAGE: &str = "usage: pmu_fuzz [--processes N] [--bystanders N] [--lives N] [--steps N] \
                     [--seed N] [--least-period N] [--least-ebb N] [--no-ebb] [--unchecked] \
                     [--release]";

/// How many times as many lives as were asked for a process has at most.
const ROUNDS: u64 = 8;

/// Of the other processes' marks in counters those, in percent, that have to be known as such, as a
/// process that runs for long might have counted as far itself.
const TOLD: u64 = 60;

/// What is asked for.
#[derive(Clone, Copy)]
pub struct Options {
    processes: u64,
    bystanders: u64,
    lives: u64,
    steps: u64,
    seed: u64,
    /// Counts between two samples, at least.
    least_period: u64,
    /// Counts between two EBBs, at least.
    least_ebb: u32,
    no_ebb: bool,
    unchecked: bool,
    release: bool,
    /// This is what a process of this number executes.
    exec: Option<u64>,
    /// It may have an EBB event, which was opened before execve.
    had_ebb: bool,
    /// One that leaves user space out.
    kernel_mmcr2: bool,
    /// CPUs of the machine.
    cpus: usize,
    /// How fast counters count.
    pace: Pace,
    /// This program.
    program: RawFd,
}

fn parse(arguments: &[String]) -> Result<Options, &'static str> {
    // SAFETY: a question without pointers.
    let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    let program =
        std::fs::File::open("/proc/self/exe").map_err(|_| "/proc/self/exe cannot be read")?;
    let mut options = Options {
        processes: 16,
        bystanders: 4,
        lives: 4,
        steps: 200,
        seed: 1,
        least_period: 1,
        least_ebb: 1,
        no_ebb: false,
        unchecked: false,
        release: false,
        exec: None,
        had_ebb: false,
        kernel_mmcr2: false,
        cpus: usize::try_from(cpus).unwrap_or(1),
        pace: Pace::of_machine().map_err(|_| "/proc/cpuinfo cannot be read")?,
        program: program.into_raw_fd(),
    };
    let mut arguments = arguments.iter();
    while let Some(name) = arguments.next() {
        let mut number = || {
            arguments
                .next()
                .and_then(|text| text.parse().ok())
                .ok_or(USAGE)
        };
        match name.as_str() {
            "--processes" => options.processes = number()?,
            "--bystanders" => options.bystanders = number()?,
            "--lives" => options.lives = number()?,
            "--steps" => options.steps = number()?,
            "--seed" => options.seed = number()?,
            "--least-period" => options.least_period = number()?,
            "--least-ebb" => options.least_ebb = number()? as u32,
            "--exec" => options.exec = Some(number()?),
            "--had-ebb" => options.had_ebb = true,
            "--kernel-mmcr2" => options.kernel_mmcr2 = true,
            "--no-ebb" => options.no_ebb = true,
            "--unchecked" => options.unchecked = true,
            "--release" => options.release = true,
            _ => return Err(USAGE),
        }
    }
    match options.processes + options.bystanders {
        0..=NUMBERS => Ok(options),
        _ => Err("there are numbers for 23 processes"),
    }
}

/// What this process executes after execve: some steps more, of the same number.
fn executed(options: Options, number: u64) -> Outcome {
    let tally = Tally::shared()?;
    let kernel_mmcr2 = &tally.entry(number).kernel_mmcr2;
    kernel_mmcr2.store(options.kernel_mmcr2, Relaxed);
    let mut task = Task::new(number, tally, options, Page::map(number)?);
    task.events.had_ebb = options.had_ebb;
    task.check_new()?;
    registers::survive()?;
    children::block_deadly(libc::SIG_UNBLOCK);
    task.run(options.seed, options.steps, true)?;
    task.end()
}

/// Some lives of a process; another process for each.
fn live_all(number: u64, tally: &'static Tally, options: Options, lives: Range<u64>) -> Outcome {
    children::end_with_parent();
    if number % 2 == 1 {
        become_user(NOBODY)?;
        children::end_with_parent();
    }
    for life in lives {
        let seed = Random::new(options.seed, &[number, life]).any();
        // SAFETY: there is one thread, so the child finds no lock taken.
        let pid = ktap::os_result(unsafe { libc::fork() })?;
        if pid == 0 {
            children::end_with_parent();
            live(number, tally, options, life, seed);
        }
        let mut status = 0;
        // SAFETY: `status` lives through the call.
        ktap::os_result(unsafe { libc::waitpid(pid, &mut status, 0) })?;
        tally.entry(number).pid.store(0, Relaxed);
        check!(status == 0, "life {life}: {}", children::describe(status));
        tally.entry(number).add(Count::Lives, 1);
    }
    Ok(())
}

/// One life, to its end.
fn live(number: u64, tally: &'static Tally, mut options: Options, life: u64, seed: u64) -> ! {
    // An EBB event keeps all others off the PMU, so every third life has none.
    options.no_ebb |= seed.is_multiple_of(3);
    let page = registers::survive().and_then(|()| Page::map(number));
    let page = page.unwrap_or_else(|failure| {
        println!("process {number}: {failure:?}");
        exit(1)
    });
    let mut task = Task::new(number, tally, options, page);
    tally.entry(number).kernel_mmcr2.store(false, Relaxed);
    children::publish(&task);
    let outcome = task
        .check_new()
        .and_then(|()| task.run(seed, options.steps, false))
        .and_then(|()| task.end());
    children::leave(&task, &format!(", life {life}"), &outcome)
}

/// Starts the processes, waits for them and prints what came of it.
fn run(options: Options) -> Outcome {
    session::require_ebb()?;
    let tally = Tally::shared()?;
    let held = (!options.release).then(|| Attr::raw(session::CYCLES).user_only().open());
    if let Some(Err(error)) = held {
        return Err(error.into());
    }
    let mut bystanders = Vec::new();
    for number in options.processes..options.processes + options.bystanders {
        bystanders.push(Peer::spawn(move |_| {
            bystander::stand_by(number, tally, options)
        })?);
    }
    println!("ready");
    std::io::stdout().flush()?;
    let mut sound = true;
    for round in 0..ROUNDS {
        let lives = round * options.lives..(round + 1) * options.lives;
        let mut peers = Vec::new();
        for number in 0..options.processes {
            let lives = lives.clone();
            peers.push(Peer::spawn(move |_| {
                live_all(number, tally, options, lives)
            })?);
        }
        let pid = |number| tally.entry(number as u64).pid.load(Relaxed);
        sound = watch(&peers, || tally.sum(Count::Steps), pid);
        sound &= end(peers, 0, sound);
        if !sound || missing(tally, options).is_empty() {
            break;
        }
    }
    tally.done.store(true, Relaxed);
    sound &= end(bystanders, options.processes, sound);
    tally.print();
    std::io::stdout().flush()?;
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    check!(
        sound && tally.sum(Count::Failures) == 0,
        "not as it must be"
    );
    let missing = missing(tally, options);
    check!(
        missing.is_empty(),
        "in {ROUNDS} times as many lives there were no {missing:?}"
    );
    let (looks, told) = (tally.sum(Count::Looks), tally.sum(Count::Told));
    check!(
        told >= looks * TOLD,
        "{} % of others' marks in counters would have been known, not {TOLD}",
        told / looks
    );
    Ok(())
}

/// Waits for the end of processes, the first of this number; kills them if they are not `sound`, as
/// one hangs. Whether all went well.
fn end(peers: Vec<Peer>, first: u64, sound: bool) -> bool {
    let mut well = true;
    for (number, peer) in (first..).zip(peers) {
        if sound && let Err(Failure::Fail(why) | Failure::Skip(why)) = peer.join() {
            println!("process {number}: {why}");
            well = false;
        }
    }
    well
}

/// What has to happen, and has not yet. In a few lives it may not, with a driver that is right: one in
/// three has no EBBs, and events of other processes and of CPUs keep a process's own off the PMU.
fn missing(tally: &Tally, options: Options) -> Vec<Count> {
    let mut wanted = vec![
        Count::Opened,
        Count::Refused,
        Count::Samples,
        Count::Children,
    ];
    if !options.no_ebb {
        wanted.extend([Count::Ebbs, Count::Marks, Count::Looks, Count::Traced]);
        // In QEMU programs see branches from then on.
        wanted.extend(session::isa_v31().then_some(Count::Branches));
    }
    wanted.retain(|&count| tally.sum(count) == 0);
    wanted
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let options = parse(&arguments).unwrap_or_else(|why| {
        eprintln!("{why}");
        exit(2)
    });
    let outcome = match options.exec {
        None => run(options),
        Some(number) => executed(options, number),
    };
    let (why, status) = match outcome {
        Ok(()) => return,
        Err(Failure::Skip(why)) => (why, ktap::EXIT_SKIP),
        Err(Failure::Fail(why)) => (why, ktap::EXIT_FAIL),
    };
    match options.exec {
        None => println!("{why}"),
        Some(number) => println!("process {number}, after execve: {why}"),
    }
    exit(status)
}

// SPDX-License-Identifier: GPL-2.0
//! Runs many processes that do to the PMU anything that a program can, EBBs included, with random
//! numbers from a seed.
//!
//! ```text
//! pmu_fuzz [--processes N] [--bystanders N] [--lives N] [--steps N] [--seed N]
//!          [--least-period N] [--least-ebb N] [--no-ebb] [--unchecked] [--release]
//! ```
//!
//! Each process has some lives, one after another, each in a process of its own. In a life it opens
//! events of all kinds, for itself, for others and for CPUs; changes them; reads and writes every
//! register of the PMU and of EBBs; takes EBBs; forks; executes itself; changes its user; and
//! traces (`task.rs`). Every second process does not run as root. Wherever a process can write, it
//! leaves its own marks (`marks.rs`). It is a failure if a process sees a mark of another one, or
//! ends otherwise than by itself. Bystanders have no EBB event and must see nothing of the PMU, and
//! no EBB.
//!
//! The requests depend on the seed only. If something that must happen has not happened by the end,
//! each process has as many lives again, up to [`ROUNDS`] times.
//!
//! The program prints "ready" when it has begun and "total" when it is done. It holds an event
//! until its stdin ends, so that the module cannot be removed, unless `--release` is given.
//! `--unchecked` is for a driver that is known to show marks; `--no-ebb` leaves EBBs out.
//!
//! Exit status: 0 no failure, 1 a failure, 2 wrong arguments, 4 no EBB on this machine.

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

/// Most rounds: a process has at most this many times the requested lives.
const ROUNDS: u64 = 8;

/// Percentage of the other processes' marks in counters that must be recognisable. Others are not,
/// as a process that runs long may have counted that far itself.
const TOLD: u64 = 60;

/// Options of the command line, and facts about the machine.
#[derive(Clone, Copy)]
pub struct Options {
    processes: u64,
    bystanders: u64,
    lives: u64,
    steps: u64,
    seed: u64,
    /// Fewest counts between two samples.
    least_period: u64,
    /// Fewest counts between two EBBs.
    least_ebb: u32,
    no_ebb: bool,
    unchecked: bool,
    release: bool,
    /// Number of the process that executes this program, if one does.
    exec: Option<u64>,
    /// Whether the process may have an EBB event that was opened before execve.
    had_ebb: bool,
    /// Whether that event excludes user space.
    kernel_mmcr2: bool,
    /// Number of CPUs of the machine.
    cpus: usize,
    /// Speed of counters.
    pace: Pace,
    /// Descriptor of this program's file.
    program: RawFd,
}

fn parse(arguments: &[String]) -> Result<Options, &'static str> {
    // SAFETY: The call takes no pointers.
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

/// Runs what a process executes after execve: some more steps, with the same number.
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

/// Runs some lives of a process, each in another child.
fn live_all(number: u64, tally: &'static Tally, options: Options, lives: Range<u64>) -> Outcome {
    children::end_with_parent();
    if number % 2 == 1 {
        become_user(NOBODY)?;
        children::end_with_parent();
    }
    for life in lives {
        let seed = Random::new(options.seed, &[number, life]).any();
        // SAFETY: There is one thread, so the child finds no lock taken.
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

/// Runs one life, to its end.
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

/// Starts the processes, waits for them, and prints and checks the counts.
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
        "a process failed or saw what is not its own: see the lines above"
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

/// Waits for the end of processes, of which the first has the number `first`. Kills them instead if
/// one hangs (`sound` is false). Returns whether none failed.
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

/// Returns what must happen but has not happened yet. A few lives may lack it even with a correct
/// driver: one life in three has no EBBs, and events of other processes and of CPUs keep a
/// process's own events off the PMU.
fn missing(tally: &Tally, options: Options) -> Vec<Count> {
    let mut wanted = vec![
        Count::Opened,
        Count::Refused,
        Count::Samples,
        Count::Children,
    ];
    if !options.no_ebb {
        wanted.extend([Count::Ebbs, Count::Marks, Count::Looks, Count::Traced]);
        // QEMU lets programs see branches from ISA 3.1 on.
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

// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ebbprof record`: runs a program and writes its samples to a file.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::ExitStatus;
use std::time::Duration;
use std::time::Instant;

use crate::Failure;
use crate::branches::Filter;
use crate::check;
use crate::clock::Clock;
use crate::memory::Memory;
use crate::memory::Wanted;
use crate::perfdata::Event;
use crate::perfdata::Writer;
use crate::processes::Processes;
use crate::program;
use crate::progress::Progress;
use crate::target;
use crate::target::SmallStacks;

/// How long the rings are not read, unless they fill faster or a program asks for it.
pub const PAUSE: Duration = Duration::from_millis(4);
/// The time from one look for threads that are no more, or have lost the PMU, to the next.
pub const LOOK: Duration = Duration::from_millis(128);

#[derive(clap::Args)]
pub struct Options {
    /// Event: cycles, instructions, a code as 0x1001e, or a name of the PMU's in sysfs
    #[arg(short, long, default_value = "cycles")]
    event: String,

    /// Counts from one sample to the next
    #[arg(short = 'c', long, value_name = "COUNT", default_value_t = 100_003,
        value_parser = clap::value_parser!(u64).range(100..=1 << 63))]
    period: u64,

    /// Take the callers too
    #[arg(short = 'g', long)]
    callers: bool,

    /// Record branches: which were taken before each sample
    #[arg(short, long, value_name = "WHICH")]
    branches: Option<Filter>,

    /// File to write
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    output: PathBuf,

    /// Memory for the samples of a thread, in KiB; rounded up to a power of 2
    #[arg(short, long, value_name = "KIB", default_value_t = 1024,
        value_parser = clap::value_parser!(u64).range(4..=1 << 20))]
    memory: u64,

    /// Run a program whose stacks are smaller than samples need
    #[arg(long)]
    small_stacks: bool,

    /// Program to run, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the program; its exit status, as a shell has it.
pub fn run(options: &Options) -> Result<u8, Failure> {
    let name = Path::new(&options.command[0]);
    let path = target::find(name).map_err(|error| format!("{}: {error}", name.display()))?;
    if let Some(reason) = target::refusal(&path, SmallStacks::new(options.small_stacks)) {
        return Err(reason.into());
    }
    let preloaded = preloaded()?;
    if options.event.len() >= ebbprof_ring::TEXT {
        return Err("the event's name is too long".into());
    }
    let wanted = Wanted {
        event: &options.event,
        period: options.period,
        callers: options.callers,
        branches: options.branches.map(Filter::mode).transpose()?,
    };
    check::try_event(&wanted)?;

    let words = (options.memory << 10).next_power_of_two() / 8;
    let memory = Memory::new(&wanted, words).map_err(|error| match error.raw_os_error() {
        Some(libc::EFBIG) => {
            "the memory for the samples is larger than files may be (ulimit -f)".into()
        }
        _ => format!("the memory for the samples: {error}"),
    })?;
    let event = Event::new(
        &options.event,
        options.period,
        options.callers,
        options.branches,
    );
    let writer = Writer::new(&options.output, event).map_err(|error| {
        let file = options.output.display();
        match error.raw_os_error() {
            Some(libc::ELOOP) => format!("{file}: it is a symbolic link, which is not followed"),
            Some(libc::EEXIST) => format!("{file}: it is there, and no file"),
            _ => format!("{file}: {error}"),
        }
    })?;
    let mut processes = Processes::new(&memory, Clock::new()?, writer);

    let mut command = program::command(&path, &options.command[0]);
    command
        .args(&options.command[1..])
        .env("LD_PRELOAD", preloaded)
        .env(ebbprof_ring::VARIABLE, memory.path());
    if options.small_stacks {
        command.env(ebbprof_ring::SMALL_STACKS, "1");
    }
    let mut child =
        program::spawn(&mut command).map_err(|error| format!("{}: {error}", path.display()))?;
    let recorded = record(&mut processes, &mut child);
    memory.stop();
    let status = match recorded {
        Ok(status) => status,
        Err(error) => {
            let file = options.output.display();
            say!("{file}: {error}; the program goes on, without samples");
            // What was written is to be told in any case.
            let _ = child.wait();
            return Err(unwritten(&mut processes));
        }
    };
    end(&mut processes).map_err(|error| {
        say!("{}: {error}", options.output.display());
        unwritten(&mut processes)
    })?;
    tell(&processes, &memory, options);
    let by_signal = || 128 + status.signal().unwrap_or(0);
    // CAST: a status, or a signal's number.
    Ok(status.code().unwrap_or_else(by_signal) as u8)
}

/// Writes what the program has left.
fn end(processes: &mut Processes<'_>) -> io::Result<()> {
    processes.drain_dead()?;
    processes.drain()?;
    let arguments = env::args_os();
    let command: Vec<_> = arguments
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    processes.writer.complete(&command)
}

/// What is told where the file has no more room: it has what was written.
fn unwritten(processes: &mut Processes<'_>) -> Failure {
    let loss = "the program has ended: not all of its samples were written";
    match processes.writer.cut() {
        Ok(samples) => format!("{loss}, the file has {samples}").into(),
        Err(_) => format!("{loss}, and the file is not complete").into(),
    }
}

/// Drains the rings until the program has ended.
fn record(processes: &mut Processes<'_>, child: &mut Child) -> Result<ExitStatus, Failure> {
    let mut looked = Instant::now();
    let mut progress = Progress::new();
    loop {
        let status = child.try_wait()?;
        if status.is_some() {
            program::has_ended();
        }
        // Must be read before the rings: a request that comes in between then ends the wait below
        // at once.
        let asked = processes.memory.asked();
        let filled = processes.drain()?;
        processes.writer.keep_readable();
        if let Some(status) = status {
            progress.end();
            return Ok(status);
        }
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            processes.drain_dead()?;
            processes.look_for_names()?;
            processes.resume_evicted();
        }
        progress.show(processes);
        if filled < 0.25 {
            processes.memory.wait(asked, PAUSE);
        }
    }
}

/// Says what was sampled, and what was not.
fn tell(processes: &Processes<'_>, memory: &Memory, options: &Options) {
    let writer = &processes.writer;
    say!(
        "{} samples of {} threads, {} lost, in {}",
        writer.samples,
        processes.threads,
        writer.lost,
        options.output.display()
    );
    if let Some(cost) = processes.cost() {
        say!("{cost}");
    }
    if processes.threads == 0 {
        say!("the program did not load libebbprof.so: it has no samples");
    }
    for (reason, threads) in &processes.refused {
        say!("{threads} threads have no samples: {reason}");
    }
    let (ceased, ticks) = processes.ceased;
    if ceased != 0 {
        say!(
            "{ceased} threads had no samples for {:.2} s before they ended: EBBs ceased to come",
            processes.clock.seconds(ticks as f64)
        );
    }
    let evicted = processes.evicted();
    if evicted.times != 0 {
        say!(
            "somebody took the PMU {} times: no samples for {:.2} s of threads' time",
            evicted.times,
            evicted.duration.as_secs_f64()
        );
    }
    if evicted.unknown != 0 {
        say!(
            "whether somebody took the PMU from {} threads is not known: their processes may not be traced",
            evicted.unknown
        );
    }
    let foreign = memory.foreign();
    if foreign != 0 {
        say!("{foreign} processes have no samples: they are in a PID namespace of their own");
    }
    let others = memory.others();
    if others != 0 {
        say!("{others} programs have no samples: their libebbprof is of another version");
    }
    let without = memory.without();
    if without != 0 {
        say!(
            "{without} threads have no samples: too many at a time, \
             or no room for their memory (ulimit -v)"
        );
    }
    let unpopulated = memory.unpopulated();
    if unpopulated != 0 {
        say!("{unpopulated} threads have no samples: the system had no memory for them");
    }
    if processes.broken != 0 {
        say!(
            "{} threads have no samples of their end: their programs wrote to the memory for them",
            processes.broken
        );
    }
}

/// What is to be preloaded: libebbprof.so before what the environment has.
fn preloaded() -> Result<OsString, Failure> {
    let mut list = library()?.into_os_string();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    Ok(list)
}

/// Path of libebbprof.so: beside `ebbprof`, or as `make install-ebbprof` puts it.
pub fn library() -> Result<PathBuf, Failure> {
    let own = env::current_exe()?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let path = ["libebbprof.so", "../lib/ebbprof/libebbprof.so"]
        .into_iter()
        .filter_map(|name| folder.join(name).canonicalize().ok())
        .next()
        .ok_or("libebbprof.so is not where ebbprof looks: beside it or in ../lib/ebbprof")?;
    match path.to_str() {
        Some(text) if !text.contains([':', ' ']) => Ok(path),
        _ => Err("the path of libebbprof.so has a blank or a colon".into()),
    }
}

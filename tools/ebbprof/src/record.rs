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

/// Time between two reads of the rings, unless they fill faster or a program requests it.
pub const PAUSE: Duration = Duration::from_millis(4);
/// Interval between checks for exited threads and lost PMUs.
pub const LOOK: Duration = Duration::from_millis(128);

#[derive(clap::Args)]
pub struct Options {
    /// Event: cycles, instructions, a code such as 0x1001e, or a name from the PMU's events in
    /// sysfs
    #[arg(short, long, default_value = "cycles")]
    event: String,

    /// Number of counts from one sample to the next
    #[arg(short = 'c', long, value_name = "COUNT", default_value_t = 100_003,
        value_parser = clap::value_parser!(u64).range(100..=1 << 63))]
    period: u64,

    /// Record the callers of each sample
    #[arg(short = 'g', long)]
    callers: bool,

    /// Record the branches taken before each sample
    #[arg(short, long, value_name = "WHICH")]
    branches: Option<Filter>,

    /// File to write
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    output: PathBuf,

    /// Size of each thread's sample buffer in KiB; rounded up to a power of 2
    #[arg(short, long, value_name = "KIB", default_value_t = 1024,
        value_parser = clap::value_parser!(u64).range(4..=1 << 20))]
    memory: u64,

    /// Allow stacks that may be too small for samples (Go, OCaml 5)
    #[arg(long)]
    small_stacks: bool,

    /// Program to run, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the program. Returns its exit status as a shell would.
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
            "the memory for the samples exceeds the file size limit (ulimit -f)".into()
        }
        _ => format!("cannot create the memory for the samples: {error}"),
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
            Some(libc::ELOOP) => {
                format!("{file}: it is a symbolic link, which ebbprof does not follow")
            }
            Some(libc::EEXIST) => format!("{file}: it exists and is not a regular file"),
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
            say!("{file}: {error}; the program continues without samples");
            // Waits, because the number of samples is to be reported in any case.
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
    // CAST: The value is an exit status, or 128 plus the number of a signal.
    Ok(status.code().unwrap_or_else(by_signal) as u8)
}

/// Writes the last samples and completes the file.
fn end(processes: &mut Processes<'_>) -> io::Result<()> {
    processes.drain_dead()?;
    processes.drain()?;
    let arguments = env::args_os();
    let command: Vec<_> = arguments
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    processes.writer.complete(&command)
}

/// Cuts a file that could not be written further. Returns the message for that.
fn unwritten(processes: &mut Processes<'_>) -> Failure {
    let loss = "the program has ended: not all of its samples were written";
    match processes.writer.cut() {
        Ok(samples) => format!("{loss}, the file has {samples}").into(),
        Err(_) => format!("{loss}, and the file is not complete").into(),
    }
}

/// Reads the rings until the program has ended.
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

/// Prints a summary: what was sampled, and what is missing.
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
            "{ceased} threads had no samples for {:.2} s before they ended: EBBs stopped arriving",
            processes.clock.seconds(ticks as f64)
        );
    }
    let evicted = processes.evicted();
    if evicted.times != 0 {
        say!(
            "another perf event took the PMU {} times: no samples for {:.2} s of thread time",
            evicted.times,
            evicted.duration.as_secs_f64()
        );
    }
    if evicted.unknown != 0 {
        say!(
            "cannot check whether {} threads lost the PMU: no permission to trace their processes",
            evicted.unknown
        );
    }
    let foreign = memory.foreign();
    if foreign != 0 {
        say!("{foreign} processes have no samples: they are in a PID namespace of their own");
    }
    let others = memory.others();
    if others != 0 {
        say!("{others} programs have no samples: their libebbprof has another version");
    }
    let without = memory.without();
    if without != 0 {
        say!(
            "{without} threads have no samples: too many at a time, \
             or not enough address space (ulimit -v)"
        );
    }
    let unpopulated = memory.unpopulated();
    if unpopulated != 0 {
        say!("{unpopulated} threads have no samples: the system had no memory for them");
    }
    if processes.broken != 0 {
        say!(
            "{} threads lack their last samples: their programs wrote to the sample buffer",
            processes.broken
        );
    }
}

/// Returns the value for LD_PRELOAD: libebbprof.so before the objects that the environment lists.
fn preloaded() -> Result<OsString, Failure> {
    let mut list = library()?.into_os_string();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    Ok(list)
}

/// Returns the path of libebbprof.so: beside `ebbprof`, or where `make install-ebbprof` installs
/// it.
pub fn library() -> Result<PathBuf, Failure> {
    let own = env::current_exe()?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let path = ["libebbprof.so", "../lib/ebbprof/libebbprof.so"]
        .into_iter()
        .filter_map(|name| folder.join(name).canonicalize().ok())
        .next()
        .ok_or("cannot find libebbprof.so beside ebbprof or in ../lib/ebbprof")?;
    match path.to_str() {
        Some(text) if !text.contains([':', ' ']) => Ok(path),
        _ => Err("the path of libebbprof.so must not contain a blank or a colon".into()),
    }
}

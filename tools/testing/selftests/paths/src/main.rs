// SPDX-License-Identifier: GPL-2.0
//! Executes the paths of a PMU driver for `scripts/bench.py`, which measures them. Each path runs
//! twice, with `rounds` rounds and with three times as many, so that the difference does not
//! contain the fixed cost of a run. Needs an instruction clock and one CPU.
//!
//! ```text
//! pmu_paths [NAME]...     all paths, or those named
//! pmu_paths --list        their names
//! ```
//!
//! Prints for each run `run ROUNDS TICKS LESS NAME`: the rounds done, the time base's ticks that
//! they took, and the ticks to subtract for work that is not part of the path. It prints
//! `skip NAME: REASON` for a path that the machine or the driver lacks, and `fail NAME: REASON` for
//! a path that failed. Each run is between two calls of [`section::mark`]. For a run that did not
//! end or has no figures it prints `drop NAME`, so that there is one of these lines per section, in
//! the same order.
//!
//! Exit status: 0 done, 1 a path failed, 2 wrong arguments.

mod branches;
mod calls;
mod memory;
mod profiler;
mod samples;
mod section;
mod sessions;
mod switch;

use std::process::ExitCode;
use std::time::Duration;

use ktap::Failure;
use ktap::cpu;
use ktap::process::Peer;
use pmu_selftests::machine;

/// Figures of one run of a path.
struct Run {
    /// How often the path was executed.
    rounds: u64,
    /// Ticks from the start to the end.
    ticks: u64,
    /// Ticks of the same run without events.
    less: u64,
}

/// A function that executes a path as often as its argument says.
type Walk = Box<dyn FnMut(u64) -> Result<Run, Failure>>;

/// A path through the driver.
struct Path {
    /// Name of the path in the table.
    name: String,
    /// Rounds of the shorter run. The longer run must end before the next tick, that is within 3.5
    /// million instructions.
    rounds: u64,
    /// Function that opens the events.
    prepare: Box<dyn Fn() -> Result<Walk, Failure>>,
}

impl Path {
    fn new(
        name: impl Into<String>,
        rounds: u64,
        prepare: impl Fn() -> Result<Walk, Failure> + 'static,
    ) -> Self {
        let (name, prepare) = (name.into(), Box::new(prepare));
        Self {
            name,
            rounds,
            prepare,
        }
    }

    fn measure(&self) -> Result<(), Failure> {
        // perf core checks at every switch for a second after the last event is closed.
        std::thread::sleep(Duration::from_secs(3));
        let mut walk = (self.prepare)()?;
        section::unmarked(|| walk(2))?;
        for rounds in [self.rounds, 3 * self.rounds] {
            let run = walk(rounds)?;
            section::claim();
            println!(
                "run {} {} {} {}",
                run.rounds, run.ticks, run.less, self.name
            );
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    let mut paths = switch::paths();
    paths.extend(calls::paths());
    paths.extend(samples::paths());
    paths.extend(branches::paths());
    paths.extend(profiler::paths());
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if wanted == ["--list"] {
        paths.iter().for_each(|path| println!("{}", path.name));
        return ExitCode::SUCCESS;
    }
    if let Some(name) = wanted
        .iter()
        .find(|&name| paths.iter().all(|path| path.name != *name))
    {
        eprintln!("pmu_paths: there is no path '{name}'");
        return ExitCode::from(2);
    }
    paths.retain(|path| wanted.is_empty() || wanted.contains(&path.name));
    if !machine::instructions_make_time() || cpu::online().is_ok_and(|cpus| cpus.len() != 1) {
        eprintln!("pmu_paths: needs an instruction clock and one CPU");
        return ExitCode::FAILURE;
    }
    if let Err(error) = machine::set_sample_rate(1_000_000) {
        eprintln!("pmu_paths: the sample rate cannot be set: {error}");
        return ExitCode::FAILURE;
    }
    if let Err(error) = section::share() {
        eprintln!("pmu_paths: no shared memory: {error}");
        return ExitCode::FAILURE;
    }
    let mut status = ExitCode::SUCCESS;
    for path in paths {
        // Each path has its own process, because under some drivers an EBB may end the process.
        match Peer::spawn(|_| path.measure()).and_then(|peer| peer.join()) {
            Ok(()) => {}
            Err(Failure::Skip(reason)) => println!("skip {}: {reason}", path.name),
            Err(Failure::Fail(reason)) => {
                println!("fail {}: {reason}", path.name);
                status = ExitCode::FAILURE;
            }
        }
        for _ in 0..section::drop_unclaimed() {
            println!("drop {}", path.name);
        }
    }
    status
}

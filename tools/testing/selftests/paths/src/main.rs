// SPDX-License-Identifier: GPL-2.0
//! Executes the paths of a PMU driver, which `scripts/bench.py` measures: each path
//! once as often as its `rounds` and once three times as often, so that what a run costs in any
//! case is in the difference no more. Needs an instruction clock and one CPU.
//!
//! ```text
//! pmu_paths [NAME]...     all paths, or those named
//! pmu_paths --list        their names
//! ```
//!
//! Prints for each run `run ROUNDS TICKS LESS NAME`: rounds done, the time base's ticks they took,
//! ticks of that for what is none of the path. For a path that the machine or the driver lacks it
//! prints `skip NAME: REASON`, and `fail NAME: REASON` for one that failed. Each run is between two
//! [`section::mark`]s; for one that came to no end or has no figures it prints `drop NAME`, so that
//! there are as many of these lines as sections, in their order.
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

/// What one run of a path was.
struct Run {
    /// How often the path was gone.
    rounds: u64,
    /// Ticks from start to end.
    ticks: u64,
    /// Ticks of the same run without events.
    less: u64,
}

/// Goes a path as often as it is told.
type Walk = Box<dyn FnMut(u64) -> Result<Run, Failure>>;

/// A path through the driver.
struct Path {
    /// Its name in the table.
    name: String,
    /// Rounds of the shorter run. The longer one is to end before the next tick: it may take
    /// 3.5 million instructions.
    rounds: u64,
    /// Opens the events.
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
        // perf core looks at every switch for a second after the last event is gone.
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
        // In a process of its own: a driver may let an EBB through that ends it.
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

// SPDX-License-Identifier: GPL-2.0
//! Executes the paths of a PMU driver for `scripts/bench.py`, which measures them. Each path runs
//! twice, with `rounds` rounds and with three times as many, so that the difference does not
//! contain the fixed cost of a run. Needs an instruction clock and one CPU, except with `--native`.
//!
//! ```text
//! pmu_paths [NAME]...             all paths, or those named
//! pmu_paths --list                their names
//! pmu_paths --native [NAME]...    measure them, on any machine
//! ```
//!
//! Prints for each run `run ROUNDS TICKS LESS NAME`: the rounds done, the time base's ticks that
//! they took, and the ticks to subtract for work that is not part of the path. It prints
//! `skip NAME: REASON` for a path that the machine or the driver lacks, and `fail NAME: REASON` for
//! a path that failed. Each run is between two calls of [`section::mark`]. For a run that did not
//! end or has no figures it prints `drop NAME`, so that there is one of these lines per section, in
//! the same order.
//!
//! `--native` measures by itself and prints `cost UNIT VALUE NAME` for each figure of a round: the
//! nanoseconds of the time base, and for the paths that leave two counters free ([`COUNTED`]) the
//! instructions on PMC5 and the cycles on PMC6. A figure is the median of several pairs of runs.
//! These counters stand still while a driver has the PMU frozen, so they show what the rest of the
//! kernel costs, with one more event open. Only the time covers everything.
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

use pmu_selftests::prelude::*;

/// Paths whose events leave PMC5 and PMC6 free, and that run in the kernel.
const COUNTED: [&str; 4] = [
    "open, enable and close, 1 event",
    "disable and enable, 1 event",
    "read",
    "transaction, group of 4",
];

/// Units of the figures of a native run, each with the counter that measures it.
const UNITS: [(&str, Option<u64>); 3] = [
    ("nanoseconds", None),
    ("instructions", Some(RUN_INSTRUCTIONS)),
    ("cycles", Some(RUN_CYCLES)),
];

/// How often a native run opens the events of a path, and the pairs of runs for each time.
const OPENINGS: usize = 3;
const PAIRS: usize = 5;

/// Figures of one run of a path.
struct Run {
    /// How often the path was executed.
    rounds: u64,
    /// Ticks from the start to the end.
    ticks: u64,
    /// Ticks of the same run without events.
    less: u64,
}

impl Run {
    /// Returns the ticks of the path.
    fn net(&self) -> f64 {
        self.ticks as f64 - self.less as f64
    }
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

    /// Measures the path by the time base or by `counter`, and prints the median.
    fn measure_natively(&self, unit: &str, counter: Option<u64>) -> Outcome {
        cpu::pin()?;
        if let Some(code) = counter {
            section::count_with(code)?;
        }
        let mut costs = Vec::new();
        for _ in 0..OPENINGS {
            if counter.is_none() {
                // perf core checks at every switch for a second after the last event is closed.
                std::thread::sleep(Duration::from_secs(3));
            }
            section::unmarked(|| {
                let mut walk = (self.prepare)()?;
                walk(2)?;
                for _ in 0..PAIRS {
                    let [short, long] = [walk(self.rounds)?, walk(3 * self.rounds)?];
                    let rounds = long.rounds as f64 - short.rounds as f64;
                    costs.push((long.net() - short.net()) / rounds);
                }
                Outcome::Ok(())
            })?;
        }
        // A pair without a difference in rounds has no cost.
        costs.retain(|cost| cost.is_finite());
        costs.sort_by(f64::total_cmp);
        check!(!costs.is_empty(), "no rounds");
        let mut cost = costs[costs.len() / 2];
        if counter.is_none() {
            cost *= 1e9 / machine::TIME_BASE_HZ as f64;
        }
        println!("cost {unit} {cost:.1} {}", self.name);
        Ok(())
    }
}

/// Runs a measurement in a process of its own, because under some drivers an EBB may end the
/// process. Prints why there are no figures; returns whether the path failed.
fn failed(path: &Path, measure: impl Fn(&Path) -> Outcome) -> bool {
    match Peer::spawn(|_| measure(path)).and_then(|peer| peer.join()) {
        Ok(()) => false,
        Err(Failure::Skip(reason)) => {
            println!("skip {}: {reason}", path.name);
            false
        }
        Err(Failure::Fail(reason)) => {
            println!("fail {}: {reason}", path.name);
            true
        }
    }
}

fn main() -> ExitCode {
    let mut paths = switch::paths();
    paths.extend(calls::paths());
    paths.extend(samples::paths());
    paths.extend(branches::paths());
    paths.extend(profiler::paths());
    let mut wanted: Vec<String> = std::env::args().skip(1).collect();
    if wanted == ["--list"] {
        paths.iter().for_each(|path| println!("{}", path.name));
        return ExitCode::SUCCESS;
    }
    let native = wanted.first().is_some_and(|word| word == "--native");
    if native {
        wanted.remove(0);
    }
    if let Some(name) = wanted
        .iter()
        .find(|&name| paths.iter().all(|path| path.name != *name))
    {
        eprintln!("pmu_paths: there is no path '{name}'");
        return ExitCode::from(2);
    }
    paths.retain(|path| wanted.is_empty() || wanted.contains(&path.name));
    let is_exact =
        || machine::instructions_make_time() && cpu::online().is_ok_and(|cpus| cpus.len() == 1);
    if native {
        section::find_pace();
    } else if !is_exact() {
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
        if native {
            let counted = COUNTED.contains(&path.name.as_str());
            for (unit, counter) in &UNITS[..if counted { UNITS.len() } else { 1 }] {
                if failed(&path, |path| path.measure_natively(unit, *counter)) {
                    status = ExitCode::FAILURE;
                }
            }
            continue;
        }
        if failed(&path, Path::measure) {
            status = ExitCode::FAILURE;
        }
        for _ in 0..section::drop_unclaimed() {
            println!("drop {}", path.name);
        }
    }
    status
}

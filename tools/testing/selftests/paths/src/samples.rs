// SPDX-License-Identifier: GPL-2.0
//! Events without a system call: PM interrupts, samples, and the turns of events that do not fit on
//! the PMU together.

use std::arch::asm;
use std::fs;

use ktap::Failure;
use pmu_selftests::branching::Program;
use pmu_selftests::fields::branch::ANY;
use pmu_selftests::fields::branch::USER;
use pmu_selftests::fields::sample::*;
use pmu_selftests::prelude::*;

use crate::Path;
use crate::Run;
use crate::Walk;
use crate::section;
use crate::switch::counting;

/// Cycles between samples, and nanoseconds of work for one. The emulator executes as many
/// instructions, including those of the kernel. A processor takes several samples in that time.
pub const PERIOD: u64 = 5_003;

/// Entries of the BHRB.
const BRANCHES: u64 = 32;

/// The shortest time between two turns.
const TURN_NS: u64 = 1_000_000;
const TURN_FILE: &str = "/sys/bus/event_source/devices/cpu/perf_event_mux_interval_ms";

pub fn paths() -> Vec<Path> {
    vec![
        Path::new("rotation, 8 events on 4 counters", 4, rotation),
        Path::new("PM interrupt, 1 counter", 30, || interrupts(1)),
        Path::new("PM interrupt, 6 counters", 30, || interrupts(6)),
        Path::new("sample, ip", 30, || samples(IP, work)),
        Path::new("sample, ip, tid, time", 30, || {
            samples(IP | TID | TIME, work)
        }),
        Path::new("sample, callchain", 30, || samples(IP | CALLCHAIN, work)),
        Path::new("sample, 32 branches", 30, || samples(BRANCH_STACK, branch)),
    ]
}

/// Works for about that long, with branches among the instructions.
fn work(nanoseconds: u64) -> Outcome {
    // Instructions in a round of the program, approximately.
    const ROUND: u64 = 12;
    Program::plain().run(section::instructions(nanoseconds) / ROUND);
    Ok(())
}

/// Takes `branches` direct branches, each of which uses one entry of the BHRB.
fn branch(branches: u64) -> Outcome {
    // SAFETY: The loop changes CTR only.
    unsafe {
        asm!("mtctr {}", "2: bdnz 2b", in(reg) branches, out("ctr") _, options(nomem, nostack));
    };
    Ok(())
}

/// Makes a walk that takes a sample in each [`PERIOD`] and stores it in a buffer.
fn samples(what: u64, work: fn(u64) -> Outcome) -> Result<Walk, Failure> {
    let mut attr = counting(1).next().unwrap().sampling(PERIOD, what);
    if what & BRANCH_STACK != 0 {
        attr = attr.branches(USER | ANY);
    }
    record(attr, work, move |records| {
        // The first word is the number of branches. A few samples are taken outside of the loop.
        let full = |record: &&Record| record.words[0] == BRANCHES;
        if what == BRANCH_STACK && records.iter().filter(full).count() < records.len() / 2 {
            let found: Vec<_> = records.iter().map(|record| record.words[0]).collect();
            ktap::skip(format!("not {BRANCHES} branches, but {found:?}"))?;
        }
        Ok(())
    })
}

/// Makes a walk in which an event with a period of [`PERIOD`] samples the work into a buffer.
/// `wanted` checks the records.
pub fn record(
    attr: Attr,
    work: fn(u64) -> Outcome,
    wanted: impl Fn(&[Record]) -> Outcome + 'static,
) -> Result<Walk, Failure> {
    let mut recorder = Recorder::open(attr.wakeup_events(1 << 20), 64).map_err(lacking)?;
    Ok(Box::new(move |rounds| {
        let less = section::measure_rest(|| work(rounds * PERIOD))?;
        recorder.ring.take();
        recorder.event.enable()?;
        // There are also samples from before the section and after it.
        let (mut start, mut end) = (0, 0);
        let ticks = section::measure(|| {
            start = recorder.ring.head();
            let outcome = work(rounds * PERIOD);
            end = recorder.ring.head();
            outcome
        })?;
        recorder.event.disable()?;
        recorder.ring.take_until(start);
        let records = recorder.ring.take_until(end);
        check!(
            records.iter().all(Record::is_sample),
            "lost or throttled samples"
        );
        wanted(&records)?;
        Ok(Run {
            rounds: records.len() as u64,
            ticks,
            less,
        })
    }))
}

/// Skips the path if the machine does not support it.
fn lacking(error: std::io::Error) -> Failure {
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) => Failure::Skip("not on this machine".into()),
        _ => error.into(),
    }
}

/// Makes a walk with `counters` counters that all overflow in each [`PERIOD`], and no buffer for
/// samples.
fn interrupts(counters: usize) -> Result<Walk, Failure> {
    let group = open_group(counting(counters).map(|attr| attr.sampling(PERIOD, IP)))?;
    Ok(Box::new(move |rounds| {
        let less = section::measure_rest(|| work(rounds * PERIOD))?;
        group[0].reset()?;
        group[0].enable()?;
        // Returns the number of interrupts so far. Some come before the section and after it.
        let came = || Ok::<_, Failure>(group[0].read()?.value / PERIOD);
        let (mut before, mut after) = (0, 0);
        let ticks = section::measure(|| {
            before = came()?;
            work(rounds * PERIOD)?;
            after = came()?;
            Ok(())
        })?;
        group[0].disable()?;
        Ok(Run {
            rounds: after - before,
            ticks,
            less,
        })
    }))
}

/// The driver's own time between turns, which is restored on drop.
struct Turns(String);

impl Turns {
    fn set(nanoseconds: u64) -> std::io::Result<Self> {
        let before = fs::read_to_string(TURN_FILE)?;
        fs::write(TURN_FILE, (nanoseconds / 1_000_000).to_string())?;
        Ok(Self(before.trim().into()))
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        // This value was in the file before, so the kernel accepts it.
        let _ = fs::write(TURN_FILE, &self.0);
    }
}

fn rotation() -> Result<Walk, Failure> {
    let turns = Turns::set(TURN_NS)?;
    let mut events = Vec::new();
    for attr in counting(4).chain(counting(4)) {
        events.push(attr.open()?);
    }
    Ok(Box::new(move |rounds| {
        let _held = &turns;
        let work = || {
            work::run(section::instructions(rounds * TURN_NS));
            Ok(())
        };
        let less = section::measure_rest(work)?;
        for event in &events {
            event.enable()?;
        }
        let ticks = section::measure(work)?;
        for event in &events {
            event.disable()?;
        }
        Ok(Run {
            rounds: ticks * 1_000_000_000 / machine::TIME_BASE_HZ / TURN_NS,
            ticks,
            less,
        })
    }))
}

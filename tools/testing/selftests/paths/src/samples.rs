// SPDX-License-Identifier: GPL-2.0
//! What comes by itself: PM interrupts, samples, and the turns of events that do not fit.

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

/// Of samples. So many cycles are as many instructions, of the kernel too.
pub const PERIOD: u64 = 5_003;

/// Entries of the BHRB.
const BRANCHES: u64 = 32;

/// The shortest time after which events take turns.
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

/// Works for about as many instructions, with branches.
fn work(instructions: u64) -> Outcome {
    // Of one round of the program; how many they are exactly does not matter.
    const ROUND: u64 = 12;
    Program::plain().run(instructions / ROUND);
    Ok(())
}

/// Takes so many branches, direct ones, of which each has an entry of the BHRB.
fn branch(branches: u64) -> Outcome {
    // SAFETY: a loop that changes CTR only.
    unsafe {
        asm!("mtctr {}", "2: bdnz 2b", in(reg) branches, out("ctr") _, options(nomem, nostack));
    };
    Ok(())
}

/// A sample each [`PERIOD`], into a buffer.
fn samples(what: u64, work: fn(u64) -> Outcome) -> Result<Walk, Failure> {
    let mut attr = counting(1).next().unwrap().sampling(PERIOD, what);
    if what & BRANCH_STACK != 0 {
        attr = attr.branches(USER | ANY);
    }
    record(attr, work, move |records| {
        // The first word is their number. A few samples are of code around the loop.
        let full = |record: &&Record| record.words[0] == BRANCHES;
        if what == BRANCH_STACK && records.iter().filter(full).count() < records.len() / 2 {
            let found: Vec<_> = records.iter().map(|record| record.words[0]).collect();
            ktap::skip(format!("not {BRANCHES} branches, but {found:?}"))?;
        }
        Ok(())
    })
}

/// The samples that an event with a period of [`PERIOD`] takes of the work, into a buffer, if they
/// are as wanted.
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
        // There are samples of what is before and behind the section, too.
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

/// Skips what the machine does not have.
fn lacking(error: std::io::Error) -> Failure {
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) => Failure::Skip("not on this machine".into()),
        _ => error.into(),
    }
}

/// So many counters that overflow at once each [`PERIOD`], and no buffer for samples.
fn interrupts(counters: usize) -> Result<Walk, Failure> {
    let group = open_group(counting(counters).map(|attr| attr.sampling(PERIOD, IP)))?;
    Ok(Box::new(move |rounds| {
        let less = section::measure_rest(|| work(rounds * PERIOD))?;
        group[0].reset()?;
        group[0].enable()?;
        // How many have come; what is before and behind the section has some, too.
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

/// Gives the driver's own time between turns back.
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
        // It was accepted before.
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
            work::run(rounds * TURN_NS);
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

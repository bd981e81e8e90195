// SPDX-License-Identifier: GPL-2.0
//! Switches between a task with events and another task: they send a byte back and forth through
//! pipes, which takes two switches per round.

use std::io::PipeReader;
use std::io::PipeWriter;
use std::io::Read;
use std::io::Write;

use ebb::Save;
use ktap::Failure;
use ktap::Outcome;
use ktap::process::Peer;
use perf_event::Event;
use pmu_selftests::prelude::*;

use crate::Path;
use crate::Run;
use crate::Walk;
use crate::branches::ebb_bench_handler;
use crate::section;

/// Rounds of the shorter run.
const ROUNDS: u64 = 20;

/// The byte that makes the other task open an event of its own.
const OPEN: u8 = b'o';

/// Opens and enables the events of this task.
type Open = fn() -> Result<Vec<Event>, Failure>;

pub fn paths() -> Vec<Path> {
    let forms: [(&str, Open); 6] = [
        ("EBB", || ebb_group(1)),
        ("EBB group of 6", || ebb_group(6)),
        ("1 event", || counting_group(1)),
        ("group of 4", || counting_group(4)),
        ("group of 6", || counting_group(6)),
        ("6 events, no group", || {
            let attrs = counting(6).map(|attr| attr.enabled().open());
            Ok(attrs.collect::<perf_event::Result<_>>()?)
        }),
    ];
    let both = |(name, open): (&str, Open)| {
        [("alone", false), ("beside a neighbour", true)].map(|(beside, neighbour)| {
            Path::new(format!("switch, {name}, {beside}"), ROUNDS, move || {
                switches(open, neighbour)
            })
        })
    };
    forms.into_iter().flat_map(both).collect()
}

/// Returns the attributes of the first `events` counting events, each on a counter of its own.
pub fn counting(events: usize) -> impl Iterator<Item = Attr> {
    let codes = ALL_COUNTERS.into_iter().take(events);
    codes.map(|code| Attr::raw(code).user_only())
}

/// Returns the attributes of the first `events` EBB events, as one group.
pub fn ebb(events: usize) -> impl Iterator<Item = Attr> {
    let mut codes = ALL_COUNTERS.into_iter().take(events);
    let leader = codes.next().map(ebb::event);
    leader.into_iter().chain(codes.map(ebb::member))
}

/// Opens a group and enables its leader.
pub fn enabled_group(attrs: impl Iterator<Item = Attr>) -> Result<Vec<Event>, Failure> {
    let group = open_group(attrs)?;
    group[0].enable()?;
    Ok(group)
}

fn counting_group(events: usize) -> Result<Vec<Event>, Failure> {
    enabled_group(counting(events))
}

/// Enables EBBs, as a program with EBB events does. (In QEMU the driver keeps a timer running for a
/// program that may enable them at any time.)
pub fn turn_ebbs_on() -> Outcome {
    // SAFETY: The handler does nothing, so it is sound whatever code an EBB interrupts.
    unsafe { ebb::install_saving(Save::Gprs, ebb_bench_handler) }?;
    Ok(ebb::enable()?)
}

fn ebb_group(events: usize) -> Result<Vec<Event>, Failure> {
    let group = enabled_group(ebb(events))?;
    group[0].check_scheduled()?;
    turn_ebbs_on()?;
    Ok(group)
}

/// The other task, and the pipes to and from it.
struct Partner {
    there: PipeWriter,
    back: PipeReader,
    _peer: Peer,
}

impl Partner {
    fn start() -> Result<Self, Failure> {
        let (mut theirs, there) = std::io::pipe()?;
        let (back, mut answer) = std::io::pipe()?;
        let peer = Peer::spawn(move |_| {
            let mut events = Vec::new();
            let mut byte = [0];
            // The loop ends when the process is killed.
            loop {
                theirs.read_exact(&mut byte)?;
                if byte[0] == OPEN {
                    events = counting_group(1)?;
                }
                answer.write_all(&[events.len() as u8])?;
            }
        })?;
        Ok(Self {
            there,
            back,
            _peer: peer,
        })
    }

    /// Sends a byte to the other task and waits for the answer.
    fn round(&mut self, byte: u8) -> Result<u8, Failure> {
        let mut answer = [0];
        self.there.write_all(&[byte])?;
        self.back.read_exact(&mut answer)?;
        Ok(answer[0])
    }

    fn rounds(&mut self, rounds: u64) -> Outcome {
        for _ in 0..rounds {
            self.round(0)?;
        }
        Ok(())
    }
}

fn switches(open: Open, neighbour: bool) -> Result<Walk, Failure> {
    let mut partner = Partner::start()?;
    // Measures the rounds without events, which are subtracted.
    let mut without = |rounds| {
        partner.rounds(3)?;
        section::measure_rest(|| partner.rounds(rounds))
    };
    let (short, long) = (without(ROUNDS)?, without(3 * ROUNDS)?);
    if neighbour && partner.round(OPEN)? == 0 {
        ktap::fail("the other task has no event")?;
    }
    let events = open()?;
    Ok(Box::new(move |rounds| {
        let _held = &events;
        let ticks = section::measure(|| partner.rounds(rounds))?;
        Ok(Run {
            rounds,
            ticks,
            // The fixed cost of a run is not subtracted here. The caller takes the difference of
            // two runs.
            less: rounds * (long - short) / (2 * ROUNDS),
        })
    }))
}

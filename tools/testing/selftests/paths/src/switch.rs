// SPDX-License-Identifier: GPL-2.0
//! Switches between a task with events and another one: a byte goes there and back through
//! pipes, which takes two switches a round.

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

/// Of the shorter run.
const ROUNDS: u64 = 20;

/// What has the other task open an event of its own.
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

/// The attributes of the first so many events, each on a counter of its own.
pub fn counting(events: usize) -> impl Iterator<Item = Attr> {
    let codes = ALL_COUNTERS.into_iter().take(events);
    codes.map(|code| Attr::raw(code).user_only())
}

/// The same as a group of EBB events.
pub fn ebb(events: usize) -> impl Iterator<Item = Attr> {
    let mut codes = ALL_COUNTERS.into_iter().take(events);
    let leader = codes.next().map(ebb::event);
    leader.into_iter().chain(codes.map(ebb::member))
}

/// Opens a group, which has a leader, and enables it.
pub fn enabled_group(attrs: impl Iterator<Item = Attr>) -> Result<Vec<Event>, Failure> {
    let group = open_group(attrs)?;
    group[0].enable()?;
    Ok(group)
}

fn counting_group(events: usize) -> Result<Vec<Event>, Failure> {
    enabled_group(counting(events))
}

/// Turns EBBs on, as a program that has such events has them. (For one that may turn them on at any
/// time the driver keeps a timer running in QEMU.)
pub fn turn_ebbs_on() -> Outcome {
    // SAFETY: the handler does nothing.
    unsafe { ebb::install_saving(Save::Gprs, ebb_bench_handler) }?;
    Ok(ebb::enable()?)
}

fn ebb_group(events: usize) -> Result<Vec<Event>, Failure> {
    let group = enabled_group(ebb(events))?;
    group[0].check_scheduled()?;
    turn_ebbs_on()?;
    Ok(group)
}

/// The other task and the ways to it.
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
            // Until it is killed.
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

    /// Sends a byte there and waits for the answer.
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
    // The same without events.
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
            // What it took in any case is not asked for.
            less: rounds * (long - short) / (2 * ROUNDS),
        })
    }))
}

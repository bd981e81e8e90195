// SPDX-License-Identifier: GPL-2.0
//! System calls on events: open, enable, disable, read, close, and the transactions of groups.

use ktap::Failure;
use ktap::Outcome;
use perf_event::Event;
use pmu_selftests::prelude::*;

use crate::Path;
use crate::Run;
use crate::Walk;
use crate::section;
use crate::switch::counting;
use crate::switch::ebb;
use crate::switch::enabled_group;
use crate::switch::turn_ebbs_on;

pub fn paths() -> Vec<Path> {
    let mut paths = vec![
        opening("1 event", 20, || Ok(()), || counting(1)),
        opening("group of 6", 5, || Ok(()), || counting(6)),
        opening("EBB event", 20, turn_ebbs_on, || ebb(1)),
        opening("EBB group of 6", 5, turn_ebbs_on, || ebb(6)),
    ];
    paths.extend([
        Path::new("disable and enable, 1 event", 30, || switching(counting(1))),
        Path::new("disable and enable, EBB event", 30, || {
            turn_ebbs_on()?;
            switching(ebb(1))
        }),
        Path::new("read", 60, || {
            let events = enabled_group(counting(1))?;
            Ok(walk(move || Ok(events[0].read().map(drop)?)))
        }),
        Path::new("transaction, group of 4", 20, || switching(counting(4))),
        Path::new("transaction that fails, group of 4", 20, || {
            // This group occupies two of the counters.
            let pinned = counting(2).enumerate();
            let pinned = enabled_group(pinned.map(|(index, attr)| attr.pinned(index == 0)))?;
            let events = open_group(counting(4))?;
            Ok(walk(move || {
                let _held = &pinned;
                off_and_on(&events[0])
            }))
        }),
    ]);
    paths
}

/// Makes a walk that calls `round` once per round.
fn walk(mut round: impl FnMut() -> Outcome + 'static) -> Walk {
    Box::new(move |rounds| {
        let ticks = section::measure(|| {
            for _ in 0..rounds {
                round()?;
            }
            Ok(())
        })?;
        Ok(Run {
            rounds,
            ticks,
            less: 0,
        })
    })
}

/// Makes a path that opens, enables and closes a group in each round, after `prepare`.
fn opening<I>(name: &str, rounds: u64, prepare: fn() -> Outcome, attrs: fn() -> I) -> Path
where
    I: Iterator<Item = Attr> + 'static,
{
    Path::new(
        format!("open, enable and close, {name}"),
        rounds,
        move || {
            prepare()?;
            Ok(walk(move || enabled_group(attrs()).map(drop)))
        },
    )
}

fn off_and_on(event: &Event) -> Outcome {
    event.disable()?;
    Ok(event.enable()?)
}

/// Makes a walk that disables and enables a group in each round.
fn switching(attrs: impl Iterator<Item = Attr>) -> Result<Walk, Failure> {
    let events = enabled_group(attrs)?;
    events[0].check_scheduled()?;
    Ok(walk(move || off_and_on(&events[0])))
}

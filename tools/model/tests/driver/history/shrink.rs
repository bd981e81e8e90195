// SPDX-License-Identifier: GPL-2.0

//! Shortens a failing history, and prints it with its accesses to registers.

use super::{Failure, op::Op, run};
use crate::machine::{Entry, Kind, with_machine};
use pmu_model::{mmcr0, spr};
use std::fmt::Write;

/// Returns the kind of a failure: its message without numbers, which differ from step to step.
fn kind_of(failure: &Failure) -> String {
    let first = failure.what.split([';', '\n']).next().unwrap_or_default();
    first
        .chars()
        .filter(|char| !char.is_ascii_hexdigit())
        .collect()
}

/// Removes all operations that are not necessary for the history to fail in the same way.
pub fn shrink(kind: Kind, history: &[Op]) -> Vec<Op> {
    let Err(failure) = run(kind, history, false) else {
        return history.to_vec();
    };
    let wanted = kind_of(&failure);
    let mut kept = history.to_vec();
    let mut part = kept.len().div_ceil(2);
    loop {
        let mut at = 0;
        let before = kept.len();
        while at < kept.len() {
            let end = (at + part).min(kept.len());
            let mut shorter = kept.clone();
            shorter.drain(at..end);
            match run(kind, &shorter, false) {
                Err(failure) if kind_of(&failure) == wanted => {
                    shorter.truncate(failure.at + 1);
                    kept = shorter;
                }
                _ => at = end,
            }
        }
        if part == 1 && kept.len() == before {
            return kept;
        }
        part = part.div_ceil(2);
    }
}

/// Returns the shortest history found, the failure, and a table of accesses to registers.
pub fn report(kind: Kind, history: &[Op]) -> String {
    let history = shrink(kind, history);
    let failure = run(kind, &history, true);
    let mut text = match failure {
        Ok(()) => "it does not fail again".into(),
        Err(failure) => failure.what,
    };
    let _ = writeln!(text, "\nThe history, on {kind:?}:");
    for op in &history {
        let _ = writeln!(text, "    {op:?},");
    }
    let log = with_machine(|machine| machine.log.take()).unwrap_or_default();
    let _ = writeln!(text, "\ncpu  access        value              MMCR0");
    for entry in log.iter().skip(log.len().saturating_sub(400)) {
        let _ = match entry {
            Entry::Note(note) => writeln!(text, "-- {note}"),
            Entry::Access(cpu, program, write, number, value, mmcr0) => {
                let who = if *program { "program " } else { "" };
                let arrow = if *write { "<-" } else { "->" };
                let (name, fields) = (name(*number), fields(*mmcr0));
                writeln!(
                    text,
                    "{cpu}    {who}{name:<6} {arrow} {value:#018x}  {fields}"
                )
            }
        };
    }
    text
}

/// Lists constants of a module with their names.
macro_rules! named {
    ($of:ident: $($name:ident)+) => { [$(($of::$name, stringify!($name))),+] };
}

fn name(number: u32) -> String {
    let names =
        named!(spr: MMCR0 MMCR1 MMCR2 MMCR3 MMCRA SIAR SDAR SIER SIER2 SIER3 BESCR EBBHR EBBRR);
    match names.iter().find(|(known, _)| *known == number) {
        Some((_, name)) => (*name).into(),
        None if (spr::PMC1..=spr::PMC6).contains(&number) => {
            format!("PMC{}", number - spr::PMC1 + 1)
        }
        None => format!("SPR {number}"),
    }
}

fn fields(value: u64) -> String {
    let fields = named!(mmcr0: FC PMAE FCECE EBE PMC1CE PMCJCE PMAO);
    let set = fields.iter().filter(|(field, _)| value & field != 0);
    set.map(|(_, name)| *name).collect::<Vec<_>>().join(" ")
}

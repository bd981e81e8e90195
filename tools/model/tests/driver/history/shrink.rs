// SPDX-License-Identifier: GPL-2.0

//! A history that fails is made short, and printed with its accesses to registers.

use super::{Failure, op::Op, run};
use crate::machine::{Entry, Kind, with_machine};
use pmu_model::{mmcr0, spr};
use std::fmt::Write;

/// What a failure says, without numbers: they tell of the place only.
fn kind_of(failure: &Failure) -> String {
    let first = failure.what.split([';', '\n']).next().unwrap_or_default();
    first
        .chars()
        .filter(|char| !char.is_ascii_hexdigit())
        .collect()
}

/// Leaves out what is not needed for the history to fail as it does.
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

/// The shortest history found, what goes wrong in it, and a table of accesses to registers.
pub fn report(kind: Kind, history: &[Op]) -> String {
    let history = shrink(kind, history);
    let failure = run(kind, &history, true);
    let mut text = match failure {
        Ok(()) => "it does not fail again".into(),
        Err(failure) => failure.what,
    };
    let place = match kind {
        Kind {
            hypervisor: true, ..
        } => "bare metal",
        Kind {
            is_compatible: true,
            ..
        } => "a partition in the compatibility mode of POWER9",
        _ => "a partition",
    };
    let sdar = if kind.sdar_moves {
        ", where SDAR moves"
    } else {
        ""
    };
    let ebe = if kind.ebbs_outlive_ebe {
        ", where EBBs need no EBE"
    } else {
        ""
    };
    let late = if kind.alerts_come_late {
        ", where alerts come late"
    } else {
        ""
    };
    let seed = kind.seed;
    let _ = writeln!(
        text,
        "\nThe history, on {place}{sdar}{ebe}{late}, by chance {seed}:"
    );
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

fn name(number: u32) -> String {
    let names = [
        (spr::MMCR0, "MMCR0"),
        (spr::MMCR1, "MMCR1"),
        (spr::MMCR2, "MMCR2"),
        (spr::MMCR3, "MMCR3"),
        (spr::MMCRA, "MMCRA"),
        (spr::SIAR, "SIAR"),
        (spr::SDAR, "SDAR"),
        (spr::SIER, "SIER"),
        (spr::SIER2, "SIER2"),
        (spr::SIER3, "SIER3"),
        (spr::BESCR, "BESCR"),
        (spr::EBBHR, "EBBHR"),
        (spr::EBBRR, "EBBRR"),
    ];
    match names.iter().find(|(known, _)| *known == number) {
        Some((_, name)) => (*name).into(),
        None if (spr::PMC1..=spr::PMC6).contains(&number) => {
            format!("PMC{}", number - spr::PMC1 + 1)
        }
        None => format!("SPR {number}"),
    }
}

fn fields(value: u64) -> String {
    let fields = [
        (mmcr0::FC, "FC"),
        (mmcr0::PMAE, "PMAE"),
        (mmcr0::FCECE, "FCECE"),
        (mmcr0::EBE, "EBE"),
        (mmcr0::PMC1CE, "PMC1CE"),
        (mmcr0::PMCJCE, "PMCjCE"),
        (mmcr0::PMAO, "PMAO"),
    ];
    let set = fields.iter().filter(|(field, _)| value & field != 0);
    set.map(|(_, name)| *name).collect::<Vec<_>>().join(" ")
}

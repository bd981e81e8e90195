// SPDX-License-Identifier: GPL-2.0

//! Tests that break a rule of the model, for the CPUs and for each program's own facility. These
//! agree with each other, but the prediction, which does not use the model, must differ.

use super::*;
use crate::history::{MACHINE, run, shrink::shrink};
use pmu_model::{Fault, break_rule};
use std::sync::PoisonError;

/// A program gets an EBB from PMC6, which does not count in its handler. The program returns from
/// the handler, and freezes the counter.
const HISTORY: [Op; 9] = [
    Op::Switch(0, 0),
    Op::OpenEbb(0, 3),
    Op::User(0, UserWrite::Bescr(0b11)),
    Op::User(0, UserWrite::Counter(5, 4)),
    Op::Run(0, 3, 3, 3),
    Op::User(0, UserWrite::Return),
    Op::Run(0, 1, 1, 3),
    Op::User(0, UserWrite::Mmcr2(1 << 5)),
    Op::Run(0, 2, 1, 3),
];

#[test]
fn a_history_that_fails_is_made_short_and_fails_as_before() {
    let _one = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let kind = Kind::partition(Processor::Power9);
    let unneeded = [
        Op::Run(1, 5, 2, 3),
        Op::Switch(1, 1),
        Op::Tick(2),
        Op::Kernel(3, 4, true),
        Op::OpenEbb(1, 2),
    ];
    let mut history = unneeded.to_vec();
    for op in HISTORY {
        history.extend(unneeded.iter().chain([&op]));
    }
    break_rule(Some(Fault::Return));
    let what = |history: &[Op]| run(kind, history, false).err().map(|failure| failure.what);
    let before = what(&history);
    let short = shrink(kind, &history);
    let after = what(&short);
    break_rule(None);
    assert!(before.is_some());
    assert_eq!(after, before);
    // Up to the return from the handler, but not further.
    assert!(short.len() <= 6, "{short:?}");
}

#[test]
fn a_broken_rule_is_seen_by_what_is_predicted_without_it() {
    let _one = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let kinds = Kind::of_each(Kind::partition).chain(Kind::of_each(Kind::bare_metal));
    for kind in kinds {
        let what = || run(kind, &HISTORY, false).err();
        assert_eq!(what().map(|failure| failure.what), None);
        for fault in Fault::ALL {
            break_rule(Some(fault));
            let what = what().map_or_else(String::new, |failure| failure.what);
            break_rule(None);
            // On bare metal FCnP0 has no effect on programs.
            let is_seen = fault != Fault::FrozenOne || !kind.hypervisor;
            assert_eq!(what.contains("predicted"), is_seen, "{fault:?}: {what:?}");
        }
    }
}

// SPDX-License-Identifier: GPL-2.0
//! The cost of `CpuModel::solve` in instructions: for the worst known groups it is below the bound
//! that isa207 guarantees, for each CPU. Runs in a guest with any CPU under `--icount on`, because
//! the logic needs no PMU.
//!
//! ```text
//! isa207_bench                   KTAP, with each figure as a diagnostic line
//! isa207_bench search [GROUPS]   try that many groups of six for each CPU and print those that
//!                                cost most, for `worst.rs`
//! ```
//!
//! Exit status: that of KTAP; of a search 0, or 2 for wrong arguments.

mod cost;
mod group;
mod search;
mod worst;

use std::process::ExitCode;

use isa207::CpuModel;
use isa207::Request;
use ktap::Outcome;
use ktap::check;
use pmu_selftests::machine;

/// Instructions that a group may cost (`CpuModel::solve`).
const LIMIT: u64 = 20_000;
/// Instructions that a single event may cost (`CpuModel::solve`): the computation of its demand,
/// which the driver does once and keeps in packed form, and an assignment from that.
const LIMIT_OF_ONE: u64 = 1_400;
/// The number of groups that a search tries for each CPU by default.
const SEARCHED: u32 = 100_000;

const POWER8: u32 = 0x004d_0200;
const POWER9: u32 = 0x004e_1203;
const POWER10: u32 = 0x0080_1200;

/// Returns the model of the CPU with this processor version register.
fn model(pvr: u32) -> &'static CpuModel {
    CpuModel::from_pvr(pvr).expect("a PVR that isa207 knows")
}

/// Fails unless every group costs less than `limit`.
fn all_below(limit: u64, model: &CpuModel, groups: impl Iterator<Item = Vec<Request>>) -> Outcome {
    clock_counts_instructions()?;
    let mut most = 0;
    for group in groups {
        let cost = cost::of(model, &group);
        println!(
            "{} {cost} instructions: {}",
            model.name(),
            group::show(&group)
        );
        most = most.max(cost);
    }
    check!(most > 0, "no group, or none that took any time");
    check!(most < limit, "{most} instructions, {limit} allowed");
    Ok(())
}

/// Tests each named event alone.
fn one_event(model: &CpuModel) -> Outcome {
    let named = model.named_events();
    let groups = named.map(|named| vec![group::event(model, named.code)]);
    all_below(LIMIT_OF_ONE, model, groups)
}

/// Tests that groups with more events than counters are refused at little cost.
fn eight_events(model: &CpuModel, groups: &[&str]) -> Outcome {
    let groups = groups.iter().map(|group| {
        let six = group::parse(model, group);
        [&six[..], &six[..2]].concat()
    });
    all_below(LIMIT_OF_ONE, model, groups)
}

fn six_events(model: &CpuModel, groups: &[&str]) -> Outcome {
    let groups = groups.iter().map(|group| group::parse(model, group));
    all_below(LIMIT, model, groups)
}

/// Checks that a million instructions take a million nanoseconds.
fn clock_counts_instructions() -> Outcome {
    if machine::instructions_make_time() {
        Ok(())
    } else {
        ktap::skip("needs an instruction clock (--icount on)")
    }
}

fn bench() -> ! {
    ktap::run(ktap::tests!(
        clock_counts_instructions,
        power8_one_event = one_event(model(POWER8)),
        power9_one_event = one_event(model(POWER9)),
        power10_one_event = one_event(model(POWER10)),
        power8_six_events = six_events(model(POWER8), worst::POWER8),
        power9_six_events = six_events(model(POWER9), worst::POWER9),
        power10_six_events = six_events(model(POWER10), worst::POWER10),
        power8_eight_events = eight_events(model(POWER8), worst::POWER8),
        power9_eight_events = eight_events(model(POWER9), worst::POWER9),
        power10_eight_events = eight_events(model(POWER10), worst::POWER10),
    ))
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let groups = match arguments[..] {
        [] => bench(),
        ["search"] => Some(SEARCHED),
        ["search", number] => number.parse().ok(),
        _ => None,
    };
    let Some(groups) = groups else {
        eprintln!("usage: isa207_bench [search [GROUPS]]");
        return ExitCode::from(2);
    };
    for pvr in [POWER8, POWER9, POWER10] {
        search::run(model(pvr), groups);
    }
    ExitCode::SUCCESS
}

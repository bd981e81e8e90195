// SPDX-License-Identifier: GPL-2.0
//! What `CpuModel::solve` costs in instructions: the worst groups known for each CPU
//! stay below the bound that isa207 promises. Runs in a guest of any CPU under
//! `--icount on`, as the logic needs no PMU.
//!
//! ```text
//! isa207_bench                   KTAP, with each figure as a diagnostic line
//! isa207_bench search [GROUPS]   try that many groups of six for each CPU and
//!                                print the dearest, for `worst.rs`
//! ```
//!
//! Exit status: that of KTAP; of a search 0, or 2 for wrong arguments.

mod cost;
mod search;
mod worst;

use std::process::ExitCode;

use isa207::CpuModel;
use isa207::EventCode;
use isa207::Exclude;
use isa207::Isa;
use isa207::Request;
use ktap::Outcome;
use ktap::check;
use pmu_selftests::machine;
use worst::Asked;
use worst::Group;

/// What a group may cost (`CpuModel::solve`).
const LIMIT: u64 = 20_000;
/// What a single event may cost (`CpuModel::solve`).
const LIMIT_OF_ONE: u64 = 1_000;
/// Groups that a search tries for each CPU unless told.
const SEARCHED: u32 = 100_000;

/// A processor and the PVR by which isa207 knows it.
pub(crate) struct Model {
    pub(crate) name: &'static str,
    pub(crate) pvr: u32,
}

pub(crate) const POWER8: Model = Model {
    name: "POWER8",
    pvr: 0x004d_0200,
};
pub(crate) const POWER9: Model = Model {
    name: "POWER9",
    pvr: 0x004e_1203,
};
pub(crate) const POWER10: Model = Model {
    name: "POWER10",
    pvr: 0x0080_1200,
};

impl Model {
    pub(crate) fn cpu(&self) -> &'static CpuModel {
        CpuModel::from_pvr(self.pvr).expect("a PVR that isa207 knows")
    }
}

/// An event with this code, dearest in all else: it follows a task, so that it
/// has the most alternatives, excludes what can be excluded, wants a branch
/// stack, and compares with a large number where a number is compared with.
pub(crate) fn event(cpu: &CpuModel, code: u64) -> Request {
    let compares = cpu.isa() == Isa::V31 && EventCode(code).thresh_sel() != 0;
    Request {
        code,
        config1: if compares { 0x3_fbff } else { 0 },
        config2: 0,
        exclude: Exclude {
            user: true,
            kernel: true,
            hv: true,
            idle: true,
        },
        only_count_run: true,
        branch_filter_ifm: Some(0),
    }
}

/// A group of `worst.rs` as requests.
fn requests(model: &Model, group: &[Asked]) -> Vec<Request> {
    let request = |asked: &Asked| match *asked {
        Asked::Task(code) => event(model.cpu(), code),
        Asked::Other(code) => Request {
            only_count_run: false,
            ..event(model.cpu(), code)
        },
    };
    group.iter().map(request).collect()
}

/// Fails unless every group costs less than `limit`.
fn all_below(limit: u64, model: &Model, groups: &[Vec<Request>]) -> Outcome {
    if !machine::instructions_make_time() {
        return ktap::skip("needs an instruction clock (--icount on)");
    }
    let mut dearest = 0;
    for group in groups {
        let cost = cost::of(model.cpu(), group);
        println!(
            "{} {cost} instructions: {}",
            model.name,
            search::show(group)
        );
        dearest = dearest.max(cost);
    }
    check!(dearest > 0, "no group, or none that took any time");
    check!(dearest < limit, "{dearest} instructions, {limit} allowed");
    Ok(())
}

/// Each event with a name by itself.
fn one_event(model: &Model) -> Outcome {
    let named = model.cpu().named_events();
    let groups: Vec<_> = named
        .map(|named| vec![event(model.cpu(), named.code)])
        .collect();
    all_below(LIMIT_OF_ONE, model, &groups)
}

/// More events than there are counters are refused at once.
fn eight_events(model: &Model, groups: &[Group]) -> Outcome {
    let eight = groups
        .iter()
        .map(|group| [&group[..], &group[..2]].concat());
    let groups: Vec<_> = eight.map(|group| requests(model, &group)).collect();
    all_below(LIMIT_OF_ONE, model, &groups)
}

fn six_events(model: &Model, groups: &[Group]) -> Outcome {
    let groups = groups.iter().map(|group| requests(model, group));
    let groups: Vec<_> = groups.collect();
    all_below(LIMIT, model, &groups)
}

/// A million instructions take a million nanoseconds.
fn clock_counts_instructions() -> Outcome {
    if machine::instructions_make_time() {
        Ok(())
    } else {
        ktap::skip("needs an instruction clock (--icount on)")
    }
}

fn bench() -> ! {
    ktap::run(&[
        ("clock_counts_instructions", clock_counts_instructions),
        ("power8_one_event", || one_event(&POWER8)),
        ("power9_one_event", || one_event(&POWER9)),
        ("power10_one_event", || one_event(&POWER10)),
        ("power8_six_events", || six_events(&POWER8, worst::POWER8)),
        ("power9_six_events", || six_events(&POWER9, worst::POWER9)),
        ("power10_six_events", || {
            six_events(&POWER10, worst::POWER10)
        }),
        ("power8_eight_events", || {
            eight_events(&POWER8, worst::POWER8)
        }),
        ("power9_eight_events", || {
            eight_events(&POWER9, worst::POWER9)
        }),
        ("power10_eight_events", || {
            eight_events(&POWER10, worst::POWER10)
        }),
    ])
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
    for model in [POWER8, POWER9, POWER10] {
        search::run(&model, groups);
    }
    ExitCode::SUCCESS
}

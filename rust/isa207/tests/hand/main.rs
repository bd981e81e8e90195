// SPDX-License-Identifier: GPL-2.0

//! Cases worked out by hand from the manuals, one file for each CPU, and rules for the tables of
//! all CPUs.

mod branches;
mod metrics;
mod power10;
mod power8;
mod power9;
mod refusals;
mod samples;
mod tables;

use isa207::{
    CpuModel,
    Platform,
    Refusal,
    Request,
    Selector,
    Solution, //
};

const POWER8: u32 = 0x004d_0200;
/// Nimbus DD2.3, which has no blacklist.
const POWER9: u32 = 0x004e_1203;
const POWER10: u32 = 0x0080_1200;
const POWER11: u32 = 0x0082_1200;
const POWER12: u32 = 0x0083_0100;

/// Returns the model of the CPU with this processor version register.
fn model(pvr: u32) -> &'static CpuModel {
    CpuModel::from_pvr(pvr).expect("a known PVR")
}

/// Returns a request for this code with all other fields 0.
fn request(code: u64) -> Request {
    Request {
        code,
        ..Request::default()
    }
}

/// Returns a request for each of these codes.
fn requests(codes: &[u64]) -> Vec<Request> {
    codes.iter().copied().map(request).collect()
}

/// Solves in a guest of a hypervisor.
fn solve(pvr: u32, reqs: &[Request]) -> Result<Solution, Refusal> {
    model(pvr).solve(reqs, Platform::default())
}

/// Solves for events with these codes and no other attributes.
fn group(pvr: u32, codes: &[u64]) -> Result<Solution, Refusal> {
    solve(pvr, &requests(codes))
}

/// Solves for events with these codes that follow a task.
fn task_group(pvr: u32, codes: &[u64]) -> Result<Solution, Refusal> {
    let mut reqs = requests(codes);
    for req in &mut reqs {
        req.only_count_run = true;
    }
    solve(pvr, &reqs)
}

/// Validates an event with this code and no other attributes.
fn validate(pvr: u32, code: u64) -> Result<(), Refusal> {
    model(pvr).validate_event(&request(code))
}

/// Returns the refusal of events that disagree on a selector.
fn conflict<T>(selector: Selector) -> Result<T, Refusal> {
    Err(Refusal::Conflict(selector))
}

/// Returns counter numbers and codes of a solved group. Also checks the group's set of counters.
fn placements(answer: &Solution) -> Vec<(usize, u64)> {
    let placements = answer.placements();
    let set = answer
        .pmcs
        .iter()
        .fold(0, |set, pmc| set | 1 << pmc.index());
    assert_eq!(answer.pmcs.as_set(), set);
    placements
        .map(|(pmc, code)| (pmc.number(), code.0))
        .collect()
}

// SPDX-License-Identifier: GPL-2.0

//! Cases worked out by hand from the manuals, one file for each CPU, and what must hold for the
//! tables of all.

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
    Machine,
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

/// The model of the CPU with this processor version register.
fn model(pvr: u32) -> &'static CpuModel {
    CpuModel::from_pvr(pvr).expect("a known PVR")
}

/// A request for this code with everything else left out.
fn request(code: u64) -> Request {
    Request {
        code,
        ..Request::default()
    }
}

/// The same for each of these codes.
fn requests(codes: &[u64]) -> Vec<Request> {
    codes.iter().copied().map(request).collect()
}

/// Solves in a guest of a hypervisor.
fn solve(pvr: u32, reqs: &[Request]) -> Result<Solution, Refusal> {
    model(pvr).solve(reqs, Machine::default())
}

/// Solves for events with these codes and nothing else.
fn group(pvr: u32, codes: &[u64]) -> Result<Solution, Refusal> {
    solve(pvr, &requests(codes))
}

/// The same for events that follow a task.
fn task_group(pvr: u32, codes: &[u64]) -> Result<Solution, Refusal> {
    let mut reqs = requests(codes);
    for req in &mut reqs {
        req.only_count_run = true;
    }
    solve(pvr, &reqs)
}

/// What is wrong with an event that has this code and nothing else.
fn validate(pvr: u32, code: u64) -> Result<(), Refusal> {
    model(pvr).validate_event(&request(code))
}

/// The refusal of events that disagree on a selector.
fn conflict<T>(selector: Selector) -> Result<T, Refusal> {
    Err(Refusal::Conflict(selector))
}

/// Counter numbers and codes of a solved group, whose set of counters is checked beside.
fn places(answer: &Solution) -> Vec<(usize, u64)> {
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

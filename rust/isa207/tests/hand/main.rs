// SPDX-License-Identifier: GPL-2.0

//! Cases worked out by hand from the manuals, one file for each CPU, and what
//! must hold for the tables of all.

mod branches;
mod power10;
mod power8;
mod power9;
mod refusals;
mod samples;
mod tables;

use isa207::{
    Assignment,
    CpuModel,
    Machine,
    Refusal,
    Request, //
};

/// The CPU with this processor version register.
fn cpu(pvr: u32) -> &'static CpuModel {
    CpuModel::from_pvr(pvr).expect("a known PVR")
}

/// Requests for these codes with everything else left out.
fn requests(codes: &[u64]) -> Vec<Request> {
    let plain = |&code| Request {
        code,
        ..Request::default()
    };
    codes.iter().map(plain).collect()
}

/// The same for events that follow a task.
fn task_requests(codes: &[u64]) -> Vec<Request> {
    let mut reqs = requests(codes);
    for req in &mut reqs {
        req.only_count_run = true;
    }
    reqs
}

/// Solves in a guest of a hypervisor.
fn solve(cpu: &CpuModel, reqs: &[Request]) -> Result<Assignment, Refusal> {
    cpu.solve(reqs, Machine::default())
}

/// Counter numbers and codes of a solved group.
fn places(answer: &Assignment) -> Vec<(usize, u64)> {
    let placements = answer.placements();
    placements
        .map(|(pmc, code)| (pmc.number(), code.0))
        .collect()
}

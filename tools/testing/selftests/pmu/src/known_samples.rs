// SPDX-License-Identifier: GPL-2.0
//! Samples of the known loop ([`known`]) with any choice of fields.

use ktap::Failure;
use ktap::check;

use crate::codes::INSTRUCTIONS;
use crate::codes::on_pmc;
use crate::fields::branch;
use crate::fields::sample::BRANCH_STACK;
use crate::fields::sample::REGS_INTR;
use crate::fields::sample::REGS_USER;
use crate::fields::sample::STACK_USER;
use crate::known;
use crate::machine;
use crate::regs;
use crate::sample::Recorder;
use crate::sample::Sample;
use perf_event::Attr;

/// Instructions between two samples.
pub const PERIOD: u64 = 50_021;

/// Instructions of the loop, all rounds together.
pub const WORK: u64 = 1_500_000;

/// The fewest samples that the loop gives. The interrupts take some of the instructions.
pub const FEWEST: u64 = WORK / (PERIOD + 4000);

/// Pages of the ring buffer, enough for all samples of the loop.
pub const PAGES: usize = 8;

/// Bytes of the stack in a sample.
pub const STACK_BYTES: u32 = 512;

/// Returns an event for instructions on PMC1 that samples `fields`, with the attributes that some
/// of these fields require.
pub fn sampling(fields: u64) -> Attr {
    Attr::raw(on_pmc(1, INSTRUCTIONS))
        .sampling(PERIOD, fields)
        .with(|raw| {
            if fields & REGS_USER != 0 {
                raw.sample_regs_user = regs::GENERAL;
            }
            if fields & REGS_INTR != 0 {
                raw.sample_regs_intr = regs::GENERAL;
            }
            if fields & STACK_USER != 0 {
                raw.sample_stack_user = STACK_BYTES;
            }
            if fields & BRANCH_STACK != 0 {
                raw.branch_sample_type = branch::ANY | branch::USER;
            }
        })
}

/// Runs the loop.
pub fn run() {
    known::run(WORK);
}

/// Returns the samples within the loop. Fails if these are too few.
pub fn in_loop(samples: Vec<Sample>) -> Result<Vec<Sample>, Failure> {
    let all = samples.len();
    let inside: Vec<_> = samples
        .into_iter()
        .filter(|sample| known::code().contains(&sample.ip))
        .collect();
    check!(
        inside.len() as u64 >= FEWEST * 3 / 4,
        "{} of {all} samples in the loop",
        inside.len()
    );
    Ok(inside)
}

/// Runs the loop under the event `attr` and returns the samples within the loop.
pub fn samples_in_loop(attr: Attr) -> Result<Vec<Sample>, Failure> {
    machine::needs_pace()?;
    in_loop(Recorder::open(attr, PAGES)?.samples(run)?)
}

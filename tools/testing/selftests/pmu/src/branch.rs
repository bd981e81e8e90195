// SPDX-License-Identifier: GPL-2.0
//! Fields of a branch stack's entries beside the addresses (perf_event_open(2),
//! PERF_SAMPLE_BRANCH_STACK), and a check that this machine records branches.

use std::io;

use ktap::Outcome;
use perf_event::Attr;

use crate::fields::sample::IP;
use crate::fields::sample::TID;
use crate::machine;
use crate::machine::Model;
use crate::sample::Branch;
use crate::sample::Recorder;
use crate::sample::Sample;

/// Accessors to the bit fields of `struct perf_branch_entry`.
impl Branch {
    fn bits(&self, first: u32, count: u32) -> u64 {
        self.flags >> first & ((1 << count) - 1)
    }

    /// Returns whether the processor mispredicted the branch.
    pub fn mispredicted(&self) -> bool {
        self.bits(0, 1) != 0
    }

    /// Returns whether the processor predicted the branch correctly.
    pub fn predicted(&self) -> bool {
        self.bits(1, 1) != 0
    }

    /// Returns the cycles since the previous branch.
    pub fn cycles(&self) -> u64 {
        self.bits(4, 16)
    }

    /// Returns the PERF_BR_ number, or 0 if it is not recorded.
    pub fn kind(&self) -> u64 {
        self.bits(20, 4)
    }

    /// Returns the PERF_BR_PRIV_ number, or 0 if it is not recorded.
    pub fn privilege(&self) -> u64 {
        self.bits(30, 3)
    }
}

/// Skips a test of the contents of branch stacks where the stacks are always empty.
pub fn needs_branches() -> Outcome {
    if machine::is_emulated()? && machine::model()? < Model::Power10 {
        return ktap::skip("the emulator records branches from POWER10 on");
    }
    Ok(())
}

/// Returns an event that samples instructions of a task in user space, with the branches that
/// `filter` selects. It excludes the kernel, so each sample is taken in the program.
pub fn sampling(filter: u64) -> Attr {
    sampling_with(Attr::instructions(), filter)
}

/// Returns a sampling event such as [`sampling`] makes, from the event `attr`.
pub fn sampling_with(attr: Attr, filter: u64) -> Attr {
    attr.sampling(machine::period(20_011), IP | TID)
        .branches(filter)
        .exclude_kernel(true)
}

/// Returns the samples taken while `body` runs.
pub fn samples(attr: Attr, body: impl FnOnce()) -> io::Result<Vec<Sample>> {
    Recorder::open(attr, 256)?.samples(body)
}

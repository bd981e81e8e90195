// SPDX-License-Identifier: GPL-2.0
//! What an entry of a branch stack tells besides its addresses (perf_event_open(2),
//! PERF_SAMPLE_BRANCH_STACK), and where there are entries at all.

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

/// The bit fields of `struct perf_branch_entry`.
impl Branch {
    fn bits(&self, first: u32, count: u32) -> u64 {
        self.flags >> first & ((1 << count) - 1)
    }

    /// It was predicted wrongly.
    pub fn mispredicted(&self) -> bool {
        self.bits(0, 1) != 0
    }

    /// It was predicted rightly.
    pub fn predicted(&self) -> bool {
        self.bits(1, 1) != 0
    }

    /// Cycles since the branch before it.
    pub fn cycles(&self) -> u64 {
        self.bits(4, 16)
    }

    /// PERF_BR_ number, 0 if not told.
    pub fn kind(&self) -> u64 {
        self.bits(20, 4)
    }

    /// PERF_BR_PRIV_ number, 0 if not told.
    pub fn privilege(&self) -> u64 {
        self.bits(30, 3)
    }
}

/// Skips a test of what is in branch stacks where they stay empty.
pub fn needs_branches() -> Outcome {
    if machine::is_emulated()? && machine::model()? < Model::Power10 {
        return ktap::skip("the emulator records branches from POWER10 on");
    }
    Ok(())
}

/// Samples of a task's work in user space with the branches that `filter` wants, so that
/// every sample is of a program's own.
pub fn sampling(filter: u64) -> Attr {
    sampling_with(Attr::instructions(), filter)
}

/// The same with another event.
pub fn sampling_with(attr: Attr, filter: u64) -> Attr {
    attr.sampling(machine::period(20_011), IP | TID)
        .branches(filter)
        .exclude_kernel(true)
}

/// The samples of `body`.
pub fn samples(attr: Attr, body: impl FnOnce()) -> io::Result<Vec<Sample>> {
    Recorder::open(attr, 256)?.samples(body)
}

// SPDX-License-Identifier: GPL-2.0
//! What an entry of a branch stack tells besides its addresses (perf_event_open(2),
//! PERF_SAMPLE_BRANCH_STACK), and where there are entries at all.

use std::fs;

use ktap::Outcome;

use crate::machine;
use crate::machine::Model;
use crate::sample::Branch;

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
    let emulated = fs::read_to_string("/proc/cpuinfo")?.contains("emulated by qemu");
    if emulated && machine::model()? < Model::Power10 {
        return ktap::skip("the emulator records branches from POWER10 on");
    }
    Ok(())
}

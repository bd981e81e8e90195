// SPDX-License-Identifier: GPL-2.0

//! Which branches an event's branch stack is to hold, and how far the hardware
//! can choose them.
//!
//! The hardware has one filter at a time, MMCRA\[IFM\]:
//!
//! | IFM | records | on |
//! |---|---|---|
//! | 0 | every branch | all |
//! | 1 | branches with LK=1: calls, and `bcl 20,31,$+4` | all |
//! | 2 | indirect branches | v3.1 |
//! | 3 | conditional branches | v3.1 |
//!
//! Before v3.1 the filters 2 and 3 leave out the address of some branches and
//! record their targets only, so they are of no use here.
//!
//! IFM 2 is not used either, except where the in-tree driver is to be matched,
//! which takes it for a filter of indirect calls. The documents leave room for
//! doubt: the kernel's own test of it takes it as one of XL-form branches with
//! LK=0, that is, of everything indirect but calls. What IFM 1 and 0 record loses
//! nothing in either case, and software does the rest.
//!
//! Sources: Power ISA v2.07B and v3.1 Book III, MMCRA; `power*_bhrb_filter_map()`
//! in the kernel's `arch/powerpc/perf/power{8,9,10}-pmu.c`.

use super::{
    branch::Branch,
    cpu::{
        CpuModel,
        Isa, //
    },
    refusal::Refusal, //
};

/// The types of branches that an event asks for: the union of those that are set.
///
/// Each stands for one of perf's `PERF_SAMPLE_BRANCH_*`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BranchTypes {
    /// `ANY`: every branch.
    pub any: bool,
    /// `ANY_CALL`: calls, direct and indirect, conditional or not.
    pub any_call: bool,
    /// `ANY_RETURN`: returns, conditional or not.
    pub any_return: bool,
    /// `IND_CALL`: indirect calls.
    pub indirect_call: bool,
    /// `COND`: conditional branches, be they jumps, calls or returns.
    pub conditional: bool,
    /// `CALL`: direct calls.
    pub call: bool,
    /// `IND_JUMP`: indirect branches that are neither calls nor returns.
    pub indirect_jump: bool,
}

impl BranchTypes {
    /// No branch at all.
    const NONE: BranchTypes = BranchTypes {
        any: false,
        any_call: false,
        any_return: false,
        indirect_call: false,
        conditional: false,
        call: false,
        indirect_jump: false,
    };

    const ANY: BranchTypes = BranchTypes {
        any: true,
        ..Self::NONE
    };

    const ANY_CALL: BranchTypes = BranchTypes {
        any_call: true,
        ..Self::NONE
    };

    const INDIRECT_CALL: BranchTypes = BranchTypes {
        indirect_call: true,
        ..Self::NONE
    };

    const CONDITIONAL: BranchTypes = BranchTypes {
        conditional: true,
        ..Self::NONE
    };

    /// Whether `branch` is of one of the types.
    pub const fn contains(&self, branch: Branch) -> bool {
        let call = branch.is_call();
        let indirect = branch.is_indirect();
        self.any
            || (self.any_call && call)
            || (self.any_return && branch.is_return())
            || (self.indirect_call && call && indirect)
            || (self.conditional && branch.is_conditional())
            || (self.call && call && !indirect)
            || (self.indirect_jump && indirect && !call && !branch.is_return())
    }

    /// Whether every branch is wanted, so that none need be looked at.
    pub const fn is_all(&self) -> bool {
        self.any
    }

    /// Whether calls are all that is wanted, if anything.
    const fn are_calls(&self) -> bool {
        !(self.any || self.any_return || self.conditional || self.indirect_jump)
    }
}

/// What the hardware can do about a choice of branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardwareFilter {
    /// MMCRA\[IFM\]: records every branch that is wanted, and maybe others.
    pub ifm: u8,
    /// With this filter the BHRB has what is wanted and nothing else. Only true
    /// of a BHRB that has been recorded with `ifm`: see [`super::Mmcr::ifm`].
    pub exact: bool,
}

impl CpuModel {
    /// The hardware filter that leaves out most without losing a branch of one of
    /// `types`. What it records too many is up to software
    /// ([`BranchTypes::contains`]).
    pub fn branch_filter(&self, types: BranchTypes) -> HardwareFilter {
        let (ifm, exact) = match types {
            BranchTypes { any: true, .. } => (0, true),
            // Nothing is wanted. Any filter does.
            BranchTypes::NONE => (0, false),
            BranchTypes::CONDITIONAL if self.isa >= Isa::V31 => (3, true),
            calls if calls.are_calls() => (1, false),
            _ => (0, false),
        };
        HardwareFilter { ifm, exact }
    }

    /// The filter for `types` if the hardware is to do all, by the in-tree
    /// driver's rules; whatever the BHRB then has counts as what was asked for.
    ///
    /// # Errors
    ///
    /// [`Refusal::NoHardwareBranchFilter`] for all else, combinations included.
    pub fn strict_branch_filter(&self, types: BranchTypes) -> Result<HardwareFilter, Refusal> {
        let ifm = match types {
            BranchTypes::ANY => 0,
            BranchTypes::ANY_CALL => 1,
            BranchTypes::INDIRECT_CALL if self.isa >= Isa::V31 => 2,
            BranchTypes::CONDITIONAL if self.isa >= Isa::V31 => 3,
            _ => return Err(Refusal::NoHardwareBranchFilter),
        };
        Ok(HardwareFilter { ifm, exact: true })
    }
}

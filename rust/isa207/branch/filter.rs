// SPDX-License-Identifier: GPL-2.0

//! Which branches a branch stack contains, and how many of the others the hardware can leave out.
//!
//! The BHRB has one filter at a time, MMCRA\[IFM\]:
//!
//! | IFM | records | on |
//! |---|---|---|
//! | 0 | every branch | all |
//! | 1 | branches with LK=1: calls, and `bcl 20,31,$+4` | all |
//! | 2 | indirect branches | v3.1 |
//! | 3 | conditional branches | v3.1 |
//!
//! Before v3.1, IFM 2 and 3 record some branches as a target without the address, so they are not
//! used.
//!
//! On v3.1, IFM 2 is used only to match the in-tree driver, which treats it as a filter of indirect
//! calls. The documents are ambiguous: the kernel's own test treats it as a filter of XL-form
//! branches with LK=0, that is, of all indirect branches except calls. IFM 1 and IFM 0 record every
//! wanted branch under either reading, and software filters the rest.
//!
//! Sources: Power ISA v2.07B and v3.1 Book III, MMCRA; `power*_bhrb_filter_map()` in the kernel's
//! `arch/powerpc/perf/power{8,9,10}-pmu.c`.

use super::{
    super::{
        isa::Isa,
        models::model::CpuModel,
        refusal::Refusal, //
    },
    decode::Branch, //
};

/// The types of branches that an event asks for. A branch is wanted if it has any type that is set.
/// Each field is one of perf's `PERF_SAMPLE_BRANCH_*`.
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
    /// `COND`: conditional branches, whether jumps, calls or returns.
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

    /// Returns whether `branch` is of one of the types.
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

    /// Returns whether every branch is wanted, so that no instruction has to be decoded.
    pub const fn is_all(&self) -> bool {
        self.any
    }

    /// Returns whether only calls are wanted.
    const fn are_calls(&self) -> bool {
        !(self.any || self.any_return || self.conditional || self.indirect_jump)
    }
}

/// The hardware filter for a set of branch types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardwareFilter {
    /// MMCRA\[IFM\]: the filter records every wanted branch, and possibly others.
    pub ifm: u8,
    /// A BHRB recorded with this filter holds only wanted branches. Check
    /// [`Mmcr::ifm`](super::super::Mmcr::ifm) to see whether the BHRB was recorded with it.
    pub exact: bool,
}

impl CpuModel {
    /// Returns the hardware filter that leaves out the most without losing a branch of one of
    /// `types`. Software drops the unwanted branches ([`BranchTypes::contains`]).
    pub fn branch_filter(&self, types: BranchTypes) -> HardwareFilter {
        let (ifm, exact) = match types {
            BranchTypes { any: true, .. } => (0, true),
            // No branch is wanted, so any filter will do.
            BranchTypes::NONE => (0, false),
            BranchTypes::CONDITIONAL if self.isa >= Isa::V31 => (3, false),
            calls if calls.are_calls() => (1, false),
            _ => (0, false),
        };
        HardwareFilter { ifm, exact }
    }

    /// Returns the filter for `types` where software drops nothing, by the in-tree driver's rules:
    /// every branch in the BHRB counts as wanted.
    ///
    /// # Errors
    ///
    /// [`Refusal::NoHardwareBranchFilter`] for types without a filter, and for any combination.
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

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The branches of a sample: which ones are recorded, and the targets that the BHRB does not have.
//! These are decoded from the branch instructions.

use ebb::bhrb::Branches;
use ebb::config::Ifm;

use crate::Failure;
use crate::instruction::target;
use crate::perfdata::Branch;

/// The branches to record, named as in perf.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Filter {
    /// All taken branches
    Any,
    /// Calls
    #[value(alias = "any_call")]
    Call,
    /// Indirect branches (calls may be missing)
    IndCall,
    /// Conditional branches
    Cond,
}

impl Filter {
    /// Returns the hardware's filter mode.
    pub fn mode(self) -> Result<Ifm, Failure> {
        /// The value of `PPC_FEATURE2_ARCH_3_1`.
        const ARCH_3_1: u64 = 0x0004_0000;
        // SAFETY: The call takes no pointers.
        let since_power10 = unsafe { libc::getauxval(libc::AT_HWCAP2) } & ARCH_3_1 != 0;
        match self {
            Self::Any => Ok(Ifm::All),
            Self::Call => Ok(Ifm::Calls),
            _ if !since_power10 => {
                Err("this processor only supports the branch filters any and call".into())
            }
            Self::IndCall => Ok(Ifm::Indirect),
            Self::Cond => Ok(Ifm::Conditional),
        }
    }

    /// Returns perf's flag for the filter, `PERF_SAMPLE_BRANCH_ANY` and so on.
    pub fn as_perf(self) -> u64 {
        match self {
            Self::Any => 1 << 3,
            Self::Call => 1 << 4,
            Self::IndCall => 1 << 6,
            Self::Cond => 1 << 10,
        }
    }
}

/// Decodes the entries of the BHRB. `instruction` returns the instruction at an address.
pub fn decode(entries: &[u64], mut instruction: impl FnMut(u64) -> Option<u32>) -> Vec<Branch> {
    let mut known = |branch: ebb::bhrb::Branch| {
        let mut target = || target(branch.from, instruction(branch.from)?);
        Branch {
            from: branch.from,
            to: branch.to.or_else(&mut target).unwrap_or(0),
            mispredicted: branch.mispredicted,
        }
    };
    Branches::decode(entries).map(&mut known).collect()
}
